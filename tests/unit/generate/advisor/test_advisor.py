"""Advisors: hints reach the writer, are judged, are paid out of a share, and survive kills."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.campaigns import ReadingSession, campaign_options, reply, run_campaign
from tests.unit.generate.test_campaign import Scripted

from opsmith.errors import BadInput
from opsmith.generate.advisor.counsel import AdvisorOptions
from opsmith.generate.advisor.hints import Result, Taken, fates, hints_in
from opsmith.generate.attempt import Outcome
from opsmith.generate.budget import Budget, Prices
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.chat import NoReply, Reply, Request, Usage
from opsmith.generate.journal import AskedAs, Journal, State

RELU = "relu.default"
ADVISOR = AdvisorOptions(model="openai:advisor")
TIMED = msgspec.structs.replace(campaign_options().judging, timing="quick")


def hinting(*hints: str) -> Callable[[Request], str]:
    """An advisor that says the same before each attempt."""
    return lambda _: "\n".join(f"{number}. {hint}" for number, hint in enumerate(hints, start=1))


def advised(
    out: Path, writer: Scripted, advisor: Scripted, *, asks: AdvisorOptions = ADVISOR, **changes: object
) -> TaskHistory:
    """One task, with an advisor."""
    options = campaign_options(**({"judging": TIMED, "advisor": asks} | changes))
    [history] = run_campaign(out, options, [writer], ReadingSession([RELU], timing="quick"), advisor=advisor)
    return history


def said(request: Request) -> str:
    """All that a model was told."""
    return "\n".join(message.text for message in request.messages)


def test_hints_reach_the_writer_and_what_became_of_them_the_advisor(tmp_path: Path) -> None:
    """Before the first attempt and after it; taken or not, faster, slower and wrong."""
    kernels = [
        "right speed=1.2 # hints taken: 1",
        "right speed=1.8\n    # hints taken: 2",
        "right speed=1.1\n    # hints taken: 1, 2",
        "wrong\n    # hints taken: none",
    ]
    writer = Scripted("openai:m", lambda request: reply(RELU, kernels[request.number]))
    advisor = Scripted("openai:advisor", hinting("Use wide loads.", "Fuse both passes."))
    history = advised(tmp_path, writer, advisor, attempts=4)
    assert [1.2, 1.8, 1.1, None] == [attempt.judged.speedup for attempt in history.attempts if attempt.judged]
    assert all("1. Use wide loads.\n2. Fuse both passes." in said(request) for request in writer.asked)
    assert "hints taken" in said(writer.asked[0])
    first, second, third, fourth = advisor.asked
    assert "Nothing is written yet" in said(first)
    assert "The kernel, attempt 1:" in said(second)
    assert "1.20x" in said(second)
    assert 'attempt 2: "Fuse both passes.": taken; faster (1.80x after 1.20x)' in said(third)
    assert 'attempt 2: "Use wide loads.": not taken' in said(third)
    assert 'attempt 3: "Use wide loads.": taken; slower (1.10x after 1.80x)' in said(fourth)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db:
        kept = db.execute("SELECT attempt, number, taken, result FROM hints ORDER BY attempt, number").fetchall()
    assert (0, 1, "taken", "faster") == kept[0]
    assert (1, 2, "taken", "faster") == kept[3]
    assert (2, 1, "taken", "slower") == kept[4]
    assert (3, 1, "not taken", "wrong") == kept[6]


def test_a_writer_that_does_not_say_is_not_guessed_at(tmp_path: Path) -> None:
    """Nor is a reply without a kernel."""
    said = [reply(RELU, "right speed=1.5"), "I cannot.", reply(RELU, "right speed=1.5 again")]
    writer = Scripted("openai:m", lambda request: said[request.number])
    history = advised(tmp_path, writer, Scripted("openai:advisor", hinting("Try.")))
    found = list(fates(history.attempts))
    assert [Taken.UNSAID] * 3 == [fate.taken for fate in found]
    assert [Result.FASTER, Result.NO_KERNEL, Result.SAME] == [fate.result for fate in found]


def test_without_an_advisor_nothing_is_said_of_hints(tmp_path: Path) -> None:
    """And a journal of an earlier version is that of the same campaign."""
    writer = Scripted("openai:m", lambda _: reply(RELU, "right speed=1.2"))
    options = campaign_options(judging=TIMED)
    run_campaign(tmp_path, options, [writer], ReadingSession([RELU], timing="quick"))
    assert not any("advisor" in said(request) for request in writer.asked)
    assert "advisor" not in options.identity
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db, db:
        db.execute("ALTER TABLE exchanges DROP COLUMN asked_as")
        for table in ("hints", "evidence", "drawings"):
            db.execute(f"DROP TABLE {table}")
    nobody = Scripted("openai:m", lambda _: AssertionError())
    [history] = run_campaign(tmp_path, options, [nobody], ReadingSession([RELU], timing="quick"))
    assert 3 == len(history.attempts)


def test_one_question_serves_all_who_improve_the_same_kernel(tmp_path: Path) -> None:
    """Of a best-of-n of six, one."""
    writers = [Scripted(f"openai:{n}", lambda r: reply(RELU, f"right speed=1.{r.number}")) for n in "ab"]
    advisor = Scripted("openai:advisor", hinting("Try."))
    options = campaign_options(judging=TIMED, advisor=ADVISOR, strategy="best-of-n", models=("openai:a", "openai:b"))
    session = ReadingSession([RELU], timing="quick")
    [history] = run_campaign(tmp_path, options, writers, session, advisor=advisor)
    assert [("Try.",)] * 6 == [attempt.advice and attempt.advice.hints for attempt in history.attempts]
    assert 1 == len(advisor.asked)


def test_an_advisor_spends_its_share_and_writers_go_on_without(tmp_path: Path) -> None:
    """Of 40,000 tokens it may have a quarter; the writers keep the rest."""
    tasks = [f"op{number}.default" for number in range(6)]

    def write(request: Request) -> str:
        op = said(request).partition("kernel for `")[2].partition("`")[0]
        return reply(op, f"wrong {request.number}")

    writer = Scripted("openai:m", write)
    advisor = Scripted("openai:advisor", lambda _: Reply(text="- Try.", usage=Usage(1500, 100)))
    options = campaign_options(advisor=ADVISOR, budget=Budget(tokens=40_000))
    histories = run_campaign(tmp_path, options, [writer], ReadingSession(tasks), advisor=advisor)
    attempts = [attempt for history in histories for attempt in history.attempts]
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        spent, all_spent = journal.spent_as(AskedAs.ADVISOR), journal.spent
        assert {AskedAs.ADVISOR: len(advisor.asked)} == {AskedAs.ADVISOR: spent.tokens // 1600}
    assert 0 < spent.tokens <= 10_000
    assert all_spent.tokens <= 40_000
    assert 0 < sum(attempt.advice is not None for attempt in attempts) < len(attempts)
    assert [None] * 6 == [history.stopped for history in histories]
    assert 18 == len(attempts)


def test_what_was_asked_without_advice_is_not_asked_again_with_it(tmp_path: Path) -> None:
    """A larger budget in a resumed campaign has room for the advice; the reply without it was paid for."""
    writer = Scripted("openai:m", lambda request: reply(RELU, f"wrong {request.number}"))
    advisor = Scripted("openai:advisor", hinting("Try."))
    few = AdvisorOptions(model="openai:advisor", share=0.01)
    before = advised(tmp_path, writer, advisor, budget=Budget(tokens=20_000), asks=few)
    assert not advisor.asked
    assert before == advised(tmp_path, writer, advisor, budget=Budget(tokens=10_000_000))
    assert 3 == len(writer.asked)
    assert not advisor.asked


@pytest.mark.parametrize("kind", ["lost", "failed", "no hint"])
def test_an_advisor_that_says_nothing_costs_no_attempt(tmp_path: Path, kind: str) -> None:
    """A broken connection, and an empty answer."""
    says = {"failed": NoReply("gone", may_have_cost=True), "no hint": "", "lost": KeyboardInterrupt()}
    advisor = Scripted("openai:advisor", lambda _: says[kind])  # type: ignore[arg-type, return-value]
    if kind == "lost":
        advisor.ask = _interrupted  # type: ignore[method-assign, assignment]
        with pytest.raises(KeyboardInterrupt):
            advised(tmp_path, Scripted("openai:m", lambda _: AssertionError()), advisor, attempts=1)
        advisor = Scripted("openai:advisor", lambda _: AssertionError())
    writer = Scripted("openai:m", lambda _: reply(RELU, "right speed=1.3"))
    history = advised(tmp_path, writer, advisor, attempts=1)
    assert [(Outcome.JUDGED, None)] == [(attempt.outcome, attempt.advice) for attempt in history.attempts]
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        states = [exchange.state for exchange in journal.exchanges()]
    assert {"lost": State.LOST, "failed": State.FAILED, "no hint": State.ANSWERED}[kind] == states[0]


def _interrupted(_request: Request) -> Reply:
    raise KeyboardInterrupt


def test_a_refused_key_of_the_advisor_ends_the_campaign(tmp_path: Path) -> None:
    """As that of a writer, and nothing is paid."""
    advisor = Scripted("openai:advisor", lambda _: BadInput("status 401: the key is refused"))
    with pytest.raises(BadInput, match="401"):
        advised(tmp_path, Scripted("openai:m", lambda _: AssertionError()), advisor)


def test_kills_pay_for_no_advice_twice(tmp_path: Path) -> None:
    """At the journal's transactions in turn; the result is that without kills, but for what was lost."""

    class Killed(Exception):
        pass

    class Mortal(Journal):
        left = 0

        @contextlib.contextmanager
        def _transaction(self) -> Iterator[None]:
            self.left -= 1
            if self.left < 0:
                raise Killed
            with super()._transaction():
                yield

    def campaign(out: Path, dies_at: float) -> tuple[list[TaskHistory] | None, list[Request]]:
        writer = Scripted("openai:m", lambda r: reply(RELU, f"right speed=1.{r.number} # hints taken: 1"))
        advisor = Scripted("openai:advisor", hinting("Try."))
        options = campaign_options(judging=TIMED, advisor=ADVISOR, budget=Budget(tokens=100_000))

        def mortal(path: Path) -> Journal:
            Mortal.left = 10**9
            journal = Mortal(path)
            journal.left = int(min(dies_at, 10**9))
            return journal

        session = ReadingSession([RELU], timing="quick")
        histories = None
        with contextlib.suppress(Killed):
            histories = run_campaign(out, options, [writer], session, advisor=advisor, open_journal=mortal)
        return histories, [*writer.asked, *advisor.asked]

    whole, _ = campaign(tmp_path / "whole", float("inf"))
    for dies_at in range(1, 20, 2):
        out, asked = tmp_path / str(dies_at), []
        histories, first = campaign(out, dies_at)
        killed = histories is None
        histories, rest = campaign(out, float("inf"))
        asked = [request.key for request in (*first, *rest)]
        assert len(asked) == len(set(asked))
        assert histories is not None
        with closing(Journal(out / "journal.sqlite")) as journal:
            lost = journal.spent.lost_exchanges
        assert killed
        assert lost or histories == whole
        again, nobody = campaign(out, float("inf"))
        assert again == histories
        assert not nobody


def test_it_is_replayed_with_its_advice(tmp_path: Path) -> None:
    """Nobody is there to ask."""
    writer = Scripted("openai:m", lambda r: reply(RELU, f"right speed=1.{r.number}"))
    before = advised(tmp_path, writer, Scripted("openai:advisor", hinting("Try.")))
    nobody = Scripted("openai:m", lambda _: AssertionError())
    options = campaign_options(judging=TIMED, advisor=ADVISOR)
    session = ReadingSession([RELU], timing="quick")
    advisor = Scripted("openai:advisor", lambda _: AssertionError())
    [after] = run_campaign(tmp_path, options, [nobody], session, advisor=advisor, offline=True)
    assert before == after
    assert not nobody.asked
    assert not advisor.asked


def test_an_advisors_dollars_are_dollars(tmp_path: Path) -> None:
    """At its own price."""
    own = tmp_path / "prices.json"
    own.write_text('{"openai:*": {"input": 1.0, "output": 1.0}, "openai:advisor": {"input": 10.0, "output": 10.0}}')
    writer = Scripted("openai:m", lambda _: reply(RELU, "right speed=1.3"))
    options = campaign_options(judging=TIMED, advisor=ADVISOR, attempts=1, budget=Budget(usd=10.0))
    session = ReadingSession([RELU], timing="quick")
    advisor = Scripted("openai:advisor", hinting("Try."))
    run_campaign(tmp_path / "c", options, [writer], session, advisor=advisor, prices=Prices(own))
    with closing(Journal(tmp_path / "c" / "journal.sqlite")) as journal:
        assert pytest.approx(1e-4) == journal.spent_as(AskedAs.ADVISOR).usd
        assert pytest.approx(1.1e-4) == journal.spent.usd


@pytest.mark.parametrize(
    ("text", "hints"),
    [
        ("1. One.\n2. Two,\n   of two lines.\n\nThat is all.", ("One.", "Two, of two lines.")),
        ("<think>\n- no\n</think>\n- *Yes*", ("*Yes*",)),
        ("Just use wide\nloads.", ("Just use wide loads.",)),
        ("\n".join(f"* {n}" for n in range(9)), ("0", "1", "2", "3", "4")),
        ("- same\n- same", ("same",)),
        ("", ()),
    ],
)
def test_hints_are_read_from_what_a_model_says(text: str, hints: tuple[str, ...]) -> None:
    """A list, or else all of it; five at most."""
    assert hints == hints_in(text)
