"""What a campaign promises about money, records and text, each where it was once broken."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.campaigns import ReadingSession, campaign_options, reply, run_campaign
from tests.chat_server import ChatServer, Said
from tests.unit.generate.test_campaign import Scripted

from opsmith.core.call_text import size_in
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.errors import BadInput
from opsmith.generate import campaign
from opsmith.generate.attempt import Outcome
from opsmith.generate.background import Background
from opsmith.generate.budget import Budget, Prices
from opsmith.generate.campaign import Campaign, CutShort
from opsmith.generate.chat import Message, NoReply, Reply, Request, Role, Usage
from opsmith.generate.contexts import Setting
from opsmith.generate.feedback import telling
from opsmith.generate.journal import Journal, State
from opsmith.generate.prompt import conversation
from opsmith.generate.providers import full_names
from opsmith.generate.providers.command import CommandChat
from opsmith.generate.providers.openai_http import OpenAIChat
from opsmith.generate.redaction import Redaction
from opsmith.generate.results import summarise_campaign
from opsmith.generate.reward import Rewards
from opsmith.session import AskedTask, Judged

RELU = ["relu.default"]
TWELVE = [f"op{number}.default" for number in range(12)]


def answer(word: str = "right") -> Any:
    """A script that answers every task with one comment."""

    def say(request: Request) -> str:
        op = request.messages[1].text.partition("kernel for `")[2].partition("`")[0]
        return reply(op, word)

    return say


def journal_of(out: Path) -> Any:
    """The campaign's journal."""
    return closing(Journal(out / "journal.sqlite"))


# Money


def test_a_refused_key_costs_nothing_and_every_task_is_asked_later(tmp_path: Path) -> None:
    """A wrong key left exchanges under way, whose tasks were never asked again and whose tokens were booked."""
    wrong = Scripted("openai:m", lambda _: BadInput("status 401: the key is refused"))
    with pytest.raises(BadInput, match="401"):
        run_campaign(tmp_path, campaign_options(), [wrong], ReadingSession(TWELVE))
    with journal_of(tmp_path) as journal:
        assert (0, 0) == (journal.spent.tokens, journal.spent.lost_exchanges)
    good = Scripted("openai:m", answer())
    histories = run_campaign(tmp_path, campaign_options(), [good], ReadingSession(TWELVE))
    assert 12 == sum(attempt.accepted for history in histories for attempt in history.attempts)


def test_a_command_that_cannot_run_is_asked_again(tmp_path: Path) -> None:
    """A file that is no program, and a shell that finds none."""
    for number, text in enumerate(["\x00\x01", "#!/bin/sh\nexec /no/such/program\n"]):
        program = tmp_path / f"program{number}"
        program.write_text(text)
        program.chmod(0o755)
        options = campaign_options(models=(f"command:{program}",))
        out = tmp_path / f"out{number}"
        with pytest.raises(BadInput, match="cannot be run"):
            run_campaign(out, options, [CommandChat(str(program))], ReadingSession(RELU))
        with journal_of(out) as journal:
            assert 0 == journal.spent.tokens
            assert [] == journal.exchanges()


def test_reservations_are_waited_for(tmp_path: Path) -> None:
    """Room for one exchange at a time is enough for twelve small ones: ten of twelve tasks were stopped for good."""
    options = campaign_options(attempts=1, max_tokens=16_384, budget=Budget(tokens=40_000))
    say = answer()

    def slowly(request: Request) -> str:
        threading.Event().wait(0.02)  # The next one is to find it under way.
        return str(say(request))

    model = Scripted("openai:m", slowly)
    histories = run_campaign(tmp_path, options, [model], ReadingSession(TWELVE), exchanges_at_a_time=8)
    assert [None] * 12 == [history.stopped for history in histories]
    assert 12 == len(model.asked)


def test_every_reply_that_is_paid_for_is_judged(tmp_path: Path) -> None:
    """Of seventeen paid replies ten were thrown away, since the seconds for judging were not reserved with them."""
    options = campaign_options(attempts=17, strategy="best-of-n", budget=Budget(device_s=7.0), most_judging_s=5.0)
    model = Scripted("openai:m", lambda request: reply(RELU[0], f"wrong {request.number}"))
    session = ReadingSession(RELU)
    [history] = run_campaign(tmp_path, options, [model], session, exchanges_at_a_time=8)
    assert [Outcome.JUDGED] * len(model.asked) == [attempt.outcome for attempt in history.attempts]
    assert len(model.asked) == len(session.judged) == 9  # 8 * 0.25 s + 5 s are 7 s.
    assert "device_s: of 7 too little is left" in (history.stopped or "")


def test_what_takes_more_than_it_may_is_named(tmp_path: Path) -> None:
    """A million tokens under a limit of 200 for a reply, and seconds beyond those of an attempt."""

    class Slow(ReadingSession):
        def judge_kernel(self, task: str, kernel: Kernel, *, most_s: float, **watch: Any) -> Judged:
            return msgspec.structs.replace(super().judge_kernel(task, kernel, most_s=most_s), device_s=16.0)

    options = campaign_options(attempts=3, budget=Budget(tokens=40_000, device_s=20.0))
    model = Scripted("openai:m", lambda _: Reply(text=reply(RELU[0], "wrong"), usage=Usage(10, 1_000_000)))
    histories = run_campaign(tmp_path, options, [model], Slow(RELU))
    assert 1 == len(model.asked)
    with journal_of(tmp_path) as journal:
        summary = summarise_campaign(options, histories, {}, journal)
    over, exchange, judging = summary.overruns
    assert "1.00001e+06 of 40000 are spent" in over
    assert "openai:m says that an exchange took 1,000,010 tokens" in exchange
    assert "took 16.0 s, where 5 s" in judging
    assert "tokens" in (summary.tasks[RELU[0]].reason or "")


def test_a_kill_while_judging_reserves_nothing_and_its_seconds_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit allows one judgement, and the first was cut off: the reply is judged, and what that took is said."""
    told = threading.Event()
    keep = Journal.judging

    def judging(journal: Journal, seconds: Mapping[int, float]) -> None:
        keep(journal, seconds)
        told.set()

    class Dying(ReadingSession):
        def judge_kernel(self, task: str, kernel: Kernel, *, most_s: float, **watch: Any) -> Judged:
            watch["watch"].start()
            assert told.wait(30)
            raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "TELLING_S", 0.02)
    monkeypatch.setattr(Journal, "judging", judging)
    options = campaign_options(attempts=1, budget=Budget(device_s=5.0))
    model = Scripted("openai:m", answer())
    with pytest.raises(KeyboardInterrupt):
        run_campaign(tmp_path, options, [model], Dying(RELU))
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db, db:  # As if it had taken as long as one may.
        assert 1 == db.execute("UPDATE judgements SET device_s = device_s + 4.9 WHERE device_s > 0").rowcount
    [history] = run_campaign(tmp_path, options, [model], ReadingSession(RELU))
    assert [True] == [attempt.accepted for attempt in history.attempts]
    assert 1 == len(model.asked)
    with journal_of(tmp_path) as journal:
        spent, summary = journal.spent, summarise_campaign(options, [history], {}, journal)
    assert (0.25, 1) == (spent.device_s, spent.lost_judgements)
    assert 4.9 < spent.lost_device_s < 35
    assert "1 judgement cut off by kills" in spent.cut_off
    assert [True] == ["by kills, more than the budget" in line for line in summary.overruns if "device_s" in line]
    assert spent.exceeds(options.budget)


@pytest.mark.parametrize("text", ["tokens=10,tokens=1e6", "usd=1,usd=1", "tokens=1e30"])
def test_a_budget_that_says_two_things_is_refused(text: str) -> None:
    """The last one was taken."""
    with pytest.raises(BadInput, match="--budget"):
        Budget.parse(text)


def test_a_price_is_not_negative(tmp_path: Path) -> None:
    """It made a limit that never binds."""
    own = tmp_path / "prices.json"
    own.write_text('{"openai:*": {"input": -1, "output": 4}}')
    with pytest.raises(BadInput, match=r"prices\.json"):
        Prices(own)


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 422, 408, 504, 524])
def test_a_time_out_is_charged_and_a_refusal_is_not(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """One rule wherever it happens, and what timed out is sent once."""
    with ChatServer(lambda _body, _before: Said("no", status=status)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        model = OpenAIChat("m")
        with pytest.raises(NoReply) as failed:
            model.ask(Request(model="openai:m", messages=(), max_tokens=1, temperature=None, number=0))
        model.close()
    assert (status in (408, 504, 524)) is failed.value.may_have_cost
    assert 1 == len(server.bodies)


# Identity


def test_a_campaign_is_what_changes_its_results(tmp_path: Path) -> None:
    """It goes on where it was moved to, with another budget; with other options or another seed it says which."""
    options = campaign_options(attempts=1)
    run_campaign(tmp_path / "a", options, [Scripted("openai:m", answer())], ReadingSession(RELU))
    (tmp_path / "a").rename(tmp_path / "b")
    moved = msgspec.structs.replace(options.judging, backend="elsewhere")
    nobody = Scripted("openai:m", lambda _: AssertionError())
    same = msgspec.structs.replace(options, judging=moved, budget=Budget(tokens=10**6), references=str(tmp_path))
    run_campaign(tmp_path / "b", same, [nobody], ReadingSession(RELU))
    with closing(Journal(tmp_path / "b" / "journal.sqlite")) as journal:
        assert 1 == journal.open_campaign(options.identity, seed=7)
        with pytest.raises(BadInput, match="another seed"):
            journal.open_campaign(options.identity, seed=99, given=99)
        other = msgspec.structs.replace(options, attempts=7)
        with pytest.raises(BadInput, match=r"other options \(attempts: 1, now 7\)"):
            journal.open_campaign(other.identity, seed=7)


def test_an_emptied_journal_is_no_new_campaign(tmp_path: Path) -> None:
    """It would be paid for again."""
    run_campaign(tmp_path, campaign_options(), [Scripted("openai:m", answer())], ReadingSession(RELU))
    for path in tmp_path.glob("journal.sqlite*"):
        path.write_bytes(b"")
    with pytest.raises(BadInput, match="holds no campaign"):
        Journal(tmp_path / "journal.sqlite", resume=True)


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """What was answered until then is kept."""
    options = campaign_options()
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.open_campaign(options.identity, seed=1)
        journal._db.execute("PRAGMA max_page_count = 1")
        request = Request(model="m", messages=(), max_tokens=1, temperature=None, number=0)
        big = msgspec.structs.replace(request, messages=(Message(Role.USER, "x" * 10**6),))
        with pytest.raises(BadInput, match="make room, then continue with --resume"):
            journal.begin(big, Prices().most(big))


# Counts and reasons


def test_a_beam_counts_what_it_asks(tmp_path: Path) -> None:
    """Nothing to show, or one kernel again and again: every attempt is an exchange of its own."""
    for number, script in enumerate([lambda _: "I cannot.", answer("wrong")]):
        model = Scripted("openai:m", script)
        out = tmp_path / str(number)
        [history] = run_campaign(out, campaign_options(strategy="beam", attempts=4), [model], ReadingSession(RELU))
        assert len(model.asked) == len({a.exchange for a in history.attempts}) == len(history.attempts)
        assert [3, 1, 1, 1] == list(Counter(a.round for a in history.attempts).values())


def test_refining_ends_for_all_once_a_task_is_solved(tmp_path: Path) -> None:
    """The other model's next attempt would be paid for in vain."""
    models = [Scripted("openai:a", answer("right")), Scripted("openai:b", answer("wrong"))]
    options = campaign_options(models=("openai:a", "openai:b"))
    [history] = run_campaign(tmp_path, options, models, ReadingSession(RELU))
    assert 2 == len(history.attempts)


def test_a_model_is_named_once() -> None:
    """It was reported twice."""
    with pytest.raises(BadInput, match="named twice"):
        full_names(None, ["openai:m", "openai:m"])


@pytest.mark.parametrize(
    ("script", "budget", "reason"),
    [
        (answer(), Budget(tokens=0), "stopped: tokens: of 0 too little is left"),
        (
            lambda _: NoReply("the compiler answers with extern_kernels.mm", may_have_cost=False),
            Budget(),
            "extern_kernels",
        ),
        (answer("wrong"), Budget(), "WRONG_VALUE: WRONG_VALUE it is"),
        (lambda _: "I cannot.", Budget(), "no Python"),
    ],
)
def test_a_task_without_a_kernel_says_why(tmp_path: Path, script: Any, budget: Budget, reason: str) -> None:
    """In the summary, from which the terminal and the page have it."""
    options = campaign_options(budget=budget)
    histories = run_campaign(tmp_path, options, [Scripted("openai:m", script)], ReadingSession(RELU))
    with journal_of(tmp_path) as journal:
        assert reason in (summarise_campaign(options, histories, {}, journal).tasks[RELU[0]].reason or "")


def test_the_smallest_failing_case_has_the_fewest_elements(tmp_path: Path) -> None:
    """And not the shortest text."""
    assert (50_000_000, 200_000_000) == size_in("(T([50000000], f32)), {}")[:2]
    assert (6, 12) == size_in("(T([2, 1, 1, 3], bf16)), {}")[:2]
    assert (2, 5) == size_in("(T([], f32), T([1], b8)), {}")[:2]
    options = campaign_options(attempts=1)
    [history] = run_campaign(tmp_path, options, [Scripted("openai:m", answer("wrong"))], ReadingSession(RELU))
    judged = history.attempts[0].judged
    assert judged is not None
    large, small = (
        msgspec.structs.replace(judged.verdicts[0], inputs=text)
        for text in ("(T([50000000], f32)), {}", "(T([2, 1, 1, 3], f32)), {}")
    )
    assert [small] == list(telling([large, small]))


# Text of strangers


def test_half_a_character_ends_no_campaign(tmp_path: Path) -> None:
    """A lone surrogate cannot be written as UTF-8."""
    text = reply(RELU[0], "right \ud800")
    [history] = run_campaign(tmp_path, campaign_options(), [Scripted("openai:m", lambda _: text)], ReadingSession(RELU))
    assert history.attempts[0].accepted


def test_half_a_character_costs_one_reward_of_a_batch(tmp_path: Path) -> None:
    """The others are judged."""
    source = "def relu__default_kernel_impl(self):\n    return self  # right {}\n"
    rewards = Rewards(ReadingSession(RELU), tmp_path)  # type: ignore[arg-type]
    found = rewards.of_batch([(RELU[0], source.format(word)) for word in ("", "\ud800", "1")])
    assert [1.0, 0.0, 1.0] == [reward.value for reward in found]
    assert "UTF-8" in found[1].detail


def test_secrets_are_taken_out_by_their_parts() -> None:
    """Quoted with two characters less, in an address, in a header."""
    redaction = Redaction.of_environment(
        {"OPENAI_API_KEY": "sk-abcdefghijkl", "OPENAI_BASE_URL": "http://me:p%40ssword-1@host/v1", "SHORT_KEY": "abc",
         "KEY_FILE": "/home/me/very/secret", "MY_TOKEN": "/home/me/path"}
    )  # fmt: skip
    assert "[redacted]" == redaction.of("sk-abcdefghijkl")
    assert "x [redacted]..." == redaction.of("x sk-abcdefghij...")
    assert "at http://[redacted]@host/v1" == redaction.of("at http://me:p%40ssword-1@host/v1")
    assert "p@ssword-1" not in redaction.of("the password p@ssword-1 is wrong")
    assert "bWU6cEBzc3dvcmQtMQ" not in redaction.of("Basic bWU6cEBzc3dvcmQtMQ==")
    assert "/home/me/path abc" == redaction.of("/home/me/path abc")


def test_no_secret_reaches_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from a reply nor from a complaint, of whichever provider."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    said: list[Any] = [
        reply(RELU[0], "wrong sk-very-secret-k"),
        NoReply("denied: k-very-secret-key", may_have_cost=True),
        BadInput("status 401 for sk-very-secret-key at http://me:hunter22@host"),
    ]
    model = Scripted("openai:m", lambda request: said[request.number])
    with pytest.raises(BadInput) as failed:
        run_campaign(tmp_path, campaign_options(), [model], ReadingSession(RELU))
    assert "secret" not in str(failed.value)
    assert "hunter22" not in str(failed.value)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"very-sec" not in file.read_bytes()


# Interrupts


class Waiting:
    """A model that answers once it is let."""

    name = "openai:m"

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def ask(self, request: Request) -> Reply:
        """Wait."""
        self.asked.set()
        assert self.may_answer.wait(30)
        return Reply(text=reply(RELU[0], "right"), usage=Usage(5, 5))

    def close(self) -> None:
        """Nothing to free."""


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_waits_and_a_second_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The first says what it waits for, and the reply is kept; after the second the exchange counts as sent."""
    model, told = Waiting(), threading.Event()

    def waiting(under_way: int) -> None:
        assert 1 == under_way
        told.set()

    start = Campaign.__init__

    def watched(self: Campaign, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs, waiting=waiting)

    monkeypatch.setattr(Campaign, "__init__", watched)

    def interrupt() -> None:
        assert model.asked.wait(30)
        os.kill(os.getpid(), signal.SIGINT)
        assert told.wait(30)
        if times == 2:
            threading.Event().wait(0.1)
            os.kill(os.getpid(), signal.SIGINT)
        else:
            model.may_answer.set()

    threading.Thread(target=interrupt, daemon=True).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background job ignores it.
    try:
        with pytest.raises(CutShort if times == 2 else KeyboardInterrupt):
            run_campaign(tmp_path, campaign_options(), [model], ReadingSession(RELU))
        with journal_of(tmp_path) as journal:
            assert [State.LOST if times == 2 else State.ANSWERED] == [e.state for e in journal.exchanges()]
    finally:
        signal.signal(signal.SIGINT, before)
        model.may_answer.set()


def test_the_journal_has_64_bits_for_tokens(tmp_path: Path) -> None:
    """A program may say what it likes."""
    program = tmp_path / "program"
    said = {"text": "x", "usage": {"input_tokens": 1, "output_tokens": 2**70}}
    program.write_text(f"#!/bin/sh\ncat > /dev/null\necho '{json.dumps(said)}'")
    program.chmod(0o755)
    options = campaign_options(models=(f"command:{program}",), attempts=1)
    run_campaign(tmp_path / "out", options, [CommandChat(str(program))], ReadingSession(RELU))
    with sqlite3.connect(tmp_path / "out" / "journal.sqlite") as db:
        assert db.execute("SELECT state, tokens = most_tokens FROM exchanges").fetchall() == [("answered", 1)]


@pytest.mark.parametrize(("device", "example"), [("cpu", "batch_isend_irecv"), ("cuda:0", "buffer_ptrs_dev")])
def test_models_are_told_where_ranks_run_and_shown_an_example(tmp_path: Path, device: str, example: str) -> None:
    """Of messages on a CPU, of symmetric memory on a GPU; and what the policy says of talking."""
    problem = tmp_path / "1_Add.py"
    problem.write_text("class Model: ...\n")
    op = OpSchema(name="1_Add", schema=str(problem), variant=Variant.FUNCTIONAL, kind=TaskKind.PARALLEL)
    task = AskedTask(name="1_Add", op=op, cases=4, examples=(), dtypes=("f32",), ranks=(2, 4))
    environment = msgspec.structs.replace(ReadingSession(()).environment, device=device)
    told = Background(topology="GPU0 GPU1 NV18")
    setting = Setting(task=task, dsl="torch", environment=environment, background=told)
    rules, asked = (message.text for message in conversation(setting, ("ranks",), (), policy="native", own_model="m"))
    assert "messages between two ranks" in rules
    assert "same bit by bit" in rules
    assert "It is asked on 2 and on 4 processes" in asked
    assert example in asked
    assert "GPU0 GPU1 NV18" in asked
