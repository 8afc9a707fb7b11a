"""Who is accused after the bare process, who is not, and what the record says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.unit.runner.test_slot import case, job

from opsmith.core.case import CaseRef, Outcome, StoredOutcome
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.run import Options
from opsmith.core.verdict import BareAnswers, Status, Verdict
from opsmith.errors import RefereeFailed
from opsmith.runner.judge.bare_check import CALLS, BareCheck, Found
from opsmith.runner.judge.verdicts import with_bare_answers
from opsmith.runner.processes.bare_link import BareLink, NotAnswered
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.zygote_link import ZygoteGone
from opsmith.runner.protocol.bare_messages import PlainCall
from opsmith.runner.protocol.referee_messages import (
    Compare,
    Compared,
    ComparedCase,
    DrawSecret,
    Prepare,
    Prepared,
    PreparedCase,
    SecretDrawn,
)

OUTCOME = StoredOutcome("outcome-0", Outcome(structure="*", outputs=(), changed={}), (), {})
#: What a process does with each call: a status that the referee finds, what it raised, or why there is no answer.
Act = Status | str | Exception


class StandInReferee:
    """Draws, prepares and finds the statuses that the bare process is to get."""

    def __init__(self) -> None:
        self.statuses: list[Status] = []
        self.seeds: list[int] = []
        self.fails = False

    def ask(self, request: DrawSecret | Prepare | Compare, _reply: type[Any]) -> Any:
        if isinstance(request, DrawSecret):
            if self.fails:
                raise RefereeFailed("eager refuses")
            self.seeds.append(request.seed)
            return SecretDrawn(request.cases, tuple(PlainCall(b"{}", "") for _ in request.cases))
        if isinstance(request, Prepare):
            return Prepared(tuple(PreparedCase(None, 1, "value", "") for _ in request.cases))
        return Compared(
            {n: ComparedCase(self.statuses[n], "off", None, layout_differs=False) for n in request.outcomes}, {}
        )


class StandInProcess:
    def __init__(self, acts: Sequence[Act], referee: StandInReferee) -> None:
        self.folder = self.scratch = Path("/nowhere")
        self._acts = acts
        self._referee = referee

    def ask(self, *arguments: Any, most_s: float) -> list[Any]:
        assert 7.0 == most_s
        count = len(arguments[3])
        for act in self._acts[:count]:
            if isinstance(act, Exception):
                raise act
        self._referee.statuses = [act if isinstance(act, Status) else Status.PASSED for act in self._acts[:count]]
        return [[OUTCOME] if isinstance(act, Status) else act for act in self._acts[:count]]


class StandInLink:
    """A process for each round."""

    def __init__(self, rounds: Sequence[Sequence[Act]], referee: StandInReferee) -> None:
        self._rounds = iter(rounds)
        self._referee = referee

    @contextlib.contextmanager
    def process(self) -> Iterator[StandInProcess]:
        yield StandInProcess(next(self._rounds), self._referee)


RIGHT, WRONG = Status.PASSED, Status.WRONG_VALUE


def asked(
    *rounds: Sequence[Act],
    under_judge: Status = RIGHT,
    cases: int = 2,
    kind: TaskKind = TaskKind.OP,
    referee: StandInReferee | None = None,
    cache: str | None = "cache",
) -> Found:
    """What comes out for a kernel whose bare processes do this, round by round."""
    referee = referee or StandInReferee()
    schema = OpSchema(name="relu.default", schema="", variant=Variant.FUNCTIONAL, kind=kind)

    def judge(asked_case: CaseRef) -> Verdict:
        assert asked_case.variant is not None, "it is none of the suite's"
        return Verdict(op="", case="", content_hash="", dtype="", kernel="", status=under_judge)

    check = BareCheck(
        msgspec.structs.replace(job(2), schema=schema),
        cast("RefereeLink", referee),
        cast("BareLink", StandInLink(rounds, referee)),
        options=Options(suite="opinfo", backend="test", device="cpu", dtypes=("f32",)),
        seed=1,
        build_cache=lambda: cache,
        judge=judge,
        admitted=lambda _size: contextlib.nullcontext(),
        alone=contextlib.nullcontext,
        left_s=lambda: 7.0,
    )
    return check.ask([case(number) for number in range(cases)])


def test_a_kernel_that_answers_is_recorded_as_asked() -> None:
    """With how many calls."""
    assert Found(BareAnswers(calls=2)) == asked((RIGHT, RIGHT))
    assert CALLS == asked((RIGHT,) * 99, cases=99).answers.calls


@pytest.mark.parametrize("act", [WRONG, Status.WRONG_SHAPE, "ValueError: no", "ended by SIGSEGV", "no answer in time"])
def test_what_fails_twice_and_passes_under_the_judge_is_an_offence(act: Act) -> None:
    """Wrong, raised, declined, crashed or hung."""
    found = asked((RIGHT, act), (act, RIGHT))
    assert found.offence is not None
    assert found.offence.startswith("right only where it is judged: in a process without opsmith ")


def test_each_round_has_values_of_its_own() -> None:
    """What a worker has met it may have written down."""
    referee = StandInReferee()
    asked((WRONG, RIGHT), (WRONG, RIGHT), referee=referee)
    assert 2 == len(set(referee.seeds)) == len(referee.seeds)


def test_one_failure_is_noted_and_no_offence() -> None:
    """A kernel with a race fails anywhere, now and then."""
    found = asked((WRONG, RIGHT), (RIGHT, RIGHT))
    assert None is found.offence
    assert BareAnswers(calls=2, problem="it failed once, and not always") == found.answers


def test_what_is_wrong_under_the_judge_as_well_is_a_wrong_answer_and_no_offence() -> None:
    """The values were new to both."""
    found = asked((WRONG, RIGHT), under_judge=WRONG)
    assert None is found.offence
    assert [WRONG] == [verdict.status for verdict in found.wrong]


def test_where_eager_fails_too_nothing_is_known() -> None:
    """That is no answer of the kernel's."""
    found = asked((WRONG, RIGHT), under_judge=Status.REFERENCE_FAILED)
    assert (None, ()) == (found.offence, found.wrong)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (lambda: asked((NotAnswered("the process for it did not start"),)), "the process for it did not start"),
        (lambda: asked((ZygoteGone(),)), "the process that workers are forked from is gone"),
        (lambda: asked((OSError("disk full"),)), "disk full"),
        (lambda: asked(cases=0), "no case is small enough"),
        (lambda: asked(kind=TaskKind.COLLECTIVE), "ranks answer together"),
        (lambda: asked((RIGHT,), cache=None), "its worker named no build cache"),
    ],
)
def test_who_could_not_be_asked_is_not_accused_and_it_is_said(said: Any, why: str) -> None:
    """For lack of a process, of a case, or of what only one process can do."""
    found = said()
    assert None is found.offence
    assert 0 == found.answers.calls
    assert found.answers.problem.startswith(why)


def test_a_referee_that_fails_costs_the_question_only() -> None:
    """The kernel has passed everything else."""
    referee = StandInReferee()
    referee.fails = True
    assert "eager refuses" == asked((RIGHT,), referee=referee).answers.problem


def test_verdicts_say_what_was_asked_and_old_ones_are_read() -> None:
    """The field is absent where nobody was asked."""
    plain = Verdict(op="", case="", content_hash="", dtype="", kernel="", status=Status.PASSED)
    old = msgspec.json.encode(plain)
    assert b"bare" not in old
    assert None is msgspec.json.decode(old, type=Verdict).bare
    found = with_bare_answers(plain, BareAnswers(calls=4), "right only where it is judged", "native")
    assert (Status.DISHONEST, BareAnswers(calls=4)) == (found.status, found.bare)
    assert found == msgspec.json.decode(msgspec.json.encode(found), type=Verdict)
    silent = with_bare_answers(plain, BareAnswers(problem="no case is small enough"), None, "native")
    assert (Status.PASSED, ("in a process without opsmith: no case is small enough",)) == (
        silent.status,
        silent.evidence,
    )
