"""Campaigns: what is asked, what it may cost, and what a kill leaves behind."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.campaigns import ReadingSession, campaign_options, reply, run_by_http, run_campaign
from tests.chat_server import ChatServer, Said

from opsmith.errors import BadInput
from opsmith.generate.attempt import Outcome
from opsmith.generate.budget import Budget, Prices
from opsmith.generate.chat import NoReply, Reply, Request, Usage
from opsmith.generate.journal import Journal, State

Say = Callable[[Request], "str | Reply | Exception"]


class Scripted:
    """A model that says what a function makes of the request."""

    def __init__(self, name: str, say: Say) -> None:
        self.name, self._say = name, say
        self.asked: list[Request] = []

    def ask(self, request: Request) -> Reply:
        """Answer by the script."""
        self.asked.append(request)
        said = self._say(request)
        if isinstance(said, Exception):
            raise said
        return Reply(text=said, usage=Usage(5, 5)) if isinstance(said, str) else said

    def close(self) -> None:
        """Nothing to free."""


def test_a_wrong_kernel_is_repaired_with_what_was_found(tmp_path: Path) -> None:
    """The second question holds the first kernel and its failure, and the third is never asked."""
    model = Scripted("openai:m", lambda request: reply("relu.default", "right" if request.number else "wrong"))
    [history] = run_campaign(tmp_path, campaign_options(), [model], ReadingSession(["relu.default"]))
    assert [False, True] == [attempt.accepted for attempt in history.attempts]
    first, second = model.asked
    assert 2 == len(first.messages)
    assert "# wrong" in second.messages[2].text
    assert "WRONG_VALUE it is" in second.messages[3].text


@pytest.mark.parametrize("context", ["failures", "profile"])
def test_what_is_told_of_attempts_can_be_left_out(tmp_path: Path, context: str) -> None:
    """For an ablation: the same campaign with one thing less said."""
    comments = {"failures": "wrong", "profile": "right speed=1.5"}
    telling = {"failures": "WRONG_VALUE it is", "profile": "1.50x"}
    for number, contexts in enumerate([("failures", "profile"), ()]):
        model = Scripted("openai:m", lambda _: reply("relu.default", comments[context]))
        session = ReadingSession(["relu.default"], timing="quick")
        judging = msgspec.structs.replace(campaign_options().judging, timing="quick")
        options = campaign_options(contexts=contexts, attempts=2, judging=judging)
        run_campaign(tmp_path / str(number), options, [model], session)
        said = "".join(message.text for message in model.asked[1].messages)
        assert (telling[context] in said) is (number == 0)


def test_replies_without_a_kernel_are_told_so(tmp_path: Path) -> None:
    """No block, a syntax error, another name, and a reply that was cut off."""
    said: list[Any] = [
        "I cannot do that.",
        "```python\ndef relu__default_kernel_impl(self:\n```",
        "```python\ndef relu(self):\n    return self\n```",
        Reply(text="```python\ndef relu__default_ker", complete=False),
    ]
    model = Scripted("openai:m", lambda request: said[request.number])
    options = campaign_options(attempts=len(said))
    [history] = run_campaign(tmp_path, options, [model], ReadingSession(["relu.default"]))
    assert [Outcome.NO_CODE] * len(said) == [attempt.outcome for attempt in history.attempts]
    problems = [attempt.problem or "" for attempt in history.attempts]
    assert all(
        word in problem for word, problem in zip(["no Python", "line 1", "relu__", "cut off"], problems, strict=True)
    )
    assert problems[0] in model.asked[1].messages[-1].text


def test_a_cheat_is_never_accepted(tmp_path: Path) -> None:
    """However fast it says that it is; an honest slower kernel wins."""
    comments = ["cheat right speed=90", "right speed=1.1", "cheat speed=99"]
    model = Scripted("openai:m", lambda request: reply("relu.default", comments[request.number]))
    options = campaign_options(strategy="best-of-n")
    [history] = run_campaign(tmp_path, options, [model], ReadingSession(["relu.default"]))
    assert [False, True, False] == [attempt.accepted for attempt in history.attempts]


def test_equal_kernels_are_judged_once(tmp_path: Path) -> None:
    """Whoever wrote them."""
    models = [Scripted(f"openai:{n}", lambda _: reply("relu.default", "wrong")) for n in "ab"]
    session = ReadingSession(["relu.default"])
    options = campaign_options(models=("openai:a", "openai:b"), strategy="best-of-n")
    [history] = run_campaign(tmp_path, options, models, session)
    assert 6 == len(history.attempts)
    assert 1 == len(session.judged)


def test_a_finished_campaign_is_replayed_from_its_journal(tmp_path: Path) -> None:
    """The same attempts, with nobody there to ask."""

    def say(request: Request) -> str | Exception:
        return (
            NoReply("gone", may_have_cost=True) if request.number == 1 else reply("relu.default", str(request.number))
        )

    options = campaign_options()
    before = run_campaign(tmp_path, options, [Scripted("openai:m", say)], ReadingSession(["relu.default"]))
    nobody = Scripted("openai:m", lambda _: AssertionError())
    assert before == run_campaign(tmp_path, options, [nobody], ReadingSession(["relu.default"]), offline=True)
    assert [Outcome.JUDGED, Outcome.NO_REPLY, Outcome.JUDGED] == [attempt.outcome for attempt in before[0].attempts]
    assert not nobody.asked


def test_a_campaign_with_other_options_is_another_one(tmp_path: Path) -> None:
    """One line that says so."""
    model = Scripted("openai:m", lambda _: reply("relu.default", "right"))
    run_campaign(tmp_path, campaign_options(), [model], ReadingSession(["relu.default"]))
    with pytest.raises(BadInput, match="other options"):
        run_campaign(tmp_path, campaign_options(attempts=7), [model], ReadingSession(["relu.default"]))


def test_the_key_is_nowhere_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests, replies and problems of a server that repeats what it was sent."""
    from opsmith.generate.providers.openai_http import OpenAIChat

    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with ChatServer(lambda _body, _before: Said("denied: sk-very-secret", status=400)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        model = OpenAIChat("m")
        run_campaign(tmp_path, campaign_options(), [model], ReadingSession(["relu.default"]))
        model.close()
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert any(b"denied" in data for data in files)
    assert not any(b"sk-very-secret" in data for data in files)


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["usd", "tokens"])
def test_no_budget_is_ever_exceeded_over_a_thousand_exchanges(tmp_path: Path, limit: str) -> None:
    """Replies use what they like up to the limit of their request, fail, or do not say what they used."""
    chance = random.Random(4)
    spent = {"usd": 0.0, "tokens": 0.0, "exchanges": 0.0}
    budget = Budget(usd=2.2) if limit == "usd" else Budget(tokens=1_600_000)
    own = tmp_path / "prices.json"
    own.write_text('{"openai:*": {"input": 1.0, "output": 4.0}}')

    def say(request: Request) -> Reply | Exception:
        used = Usage(chance.randint(1, request.most_input_tokens), chance.randint(0, request.max_tokens))
        spent["usd"] += (used.input_tokens + 4 * used.output_tokens) / 1e6
        spent["tokens"] += used.input_tokens + used.output_tokens
        spent["exchanges"] += 1
        if chance.random() < 0.1:
            return NoReply("broken", may_have_cost=True)
        return Reply(text=reply("relu.default", "wrong"), usage=used if chance.random() < 0.9 else None)

    tasks = [f"op{number}.default" for number in range(80)]
    options = campaign_options(attempts=25, budget=budget, strategy="best-of-n")
    model, session = Scripted("openai:m", say), ReadingSession(tasks)
    histories = run_campaign(tmp_path / "c", options, [model], session, prices=Prices(own))
    most = budget.usd if limit == "usd" else budget.tokens
    assert most is not None
    # Questions without a known usage are charged what they may have cost.
    assert 0.5 * most < spent[limit] <= most
    assert spent["exchanges"] > 1000
    assert any(history.stopped and limit in history.stopped for history in histories)


def test_seconds_of_judging_are_a_budget_too(tmp_path: Path) -> None:
    """What an attempt may take is reserved before, what it took is settled after."""
    model = Scripted("openai:m", lambda request: reply("relu.default", f"wrong {request.number}"))
    options = campaign_options(attempts=50, budget=Budget(device_s=7.0), strategy="best-of-n")
    session = ReadingSession(["relu.default"])
    [history] = run_campaign(tmp_path, options, [model], session)
    assert "device_s" in (history.stopped or "")
    assert len(session.judged) * 0.25 <= 7.0 - 0.25


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.corpus
def test_kills_at_fifty_points_repeat_no_exchange(tmp_path: Path) -> None:
    """What was under way is lost, what was answered is kept, and in the end every task is pursued."""
    tasks = [f"op{number}.default" for number in range(160)]

    def say(body: dict[str, Any], _before: int) -> Said:
        op = body["messages"][1]["content"].partition("`")[2].partition("`")[0]
        return Said(reply(op, "right" if body["seed"] == 3 else f"wrong {body['seed']}"), wait_s=0.01)

    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.campaigns"])
    chance, kills = random.Random(1), 0
    with ChatServer(say) as server:
        while True:
            process = processes.Process(target=run_by_http, args=(str(tmp_path / "c"), tasks, server.url))
            process.start()
            enough = len(server.bodies) + chance.randint(1, 4)
            while process.is_alive() and (kills == 50 or len(server.bodies) < enough):
                time.sleep(0.002)
            time.sleep(chance.random() * 0.03)
            if process.is_alive():
                process.kill()
            process.join()
            if process.exitcode == 0:
                break
            assert -signal.SIGKILL == process.exitcode
            kills += 1
        texts = [json.dumps(body, sort_keys=True) for body in server.bodies]
    assert 50 == kills
    assert len(texts) == len(set(texts))
    with closing(Journal(tmp_path / "c" / "journal.sqlite")) as journal:
        states = Counter(exchange.state for exchange in journal.exchanges())
    assert not states[State.UNDER_WAY]
    assert 0 < states[State.LOST] <= 4 * 50
    # A kill between the reservation and the request loses an exchange that the server never saw.
    assert states[State.ANSWERED] <= len(texts) <= states[State.ANSWERED] + states[State.LOST]
