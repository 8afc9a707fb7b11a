"""A failure of a drawn call is reported with the smallest call that fails in the same way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from opsmith.calls.live import CALL_DECODER, rebuild
from opsmith.core.case import CallRecord, CaseRef
from opsmith.core.run import Options, Selection
from opsmith.core.verdict import Status, Verdict
from opsmith.runner.judge import shrinking
from opsmith.runner.judge.shrinking import Shrinking
from opsmith.runner.processes.failures import RefereeDied
from opsmith.runner.protocol.referee_messages import Enumerate, Enumerated, Feedback, Proposal, RefereeReply
from opsmith.runner.referee.server import Referee

SEED = 3
OPTIONS = Options(suite="fuzz", backend="aten", device="cpu", dtypes=("f32",))
CPU = torch.device("cpu")


class InProcess:
    """A referee without a process of its own; what it sends passes the protocol's encoding."""

    def __init__(self, folder: Path) -> None:
        self._referee = Referee("cpu", folder, 0, Selection())
        self._spool = folder / "0.spool"
        self.asked: list[msgspec.Struct] = []

    def ask(self, request: Any, _reply_type: type[Any]) -> Any:
        self.asked.append(request)
        reply = self._referee.answer(request)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(reply), type=RefereeReply)

    def record(self, case: CaseRef) -> CallRecord:
        """The call of a case."""
        content = self._spool.read_bytes()[case.offset : case.offset + case.length]
        return CALL_DECODER.decode(content)

    def close(self) -> None:
        """Close the spool file."""
        self._referee._spool.close()


@pytest.fixture
def referee(tmp_path: Path) -> Iterator[InProcess]:
    """A referee on a spool file of its own."""
    with contextlib.closing(InProcess(tmp_path)) as referee:
        yield referee


def cases(referee: InProcess, op: str) -> list[CaseRef]:
    """The cases that the suite draws for an op."""
    enumerated = referee.ask(Enumerate("fuzz", op, "f32", "cpu", SEED, None, None), Enumerated)
    assert isinstance(enumerated, Enumerated)
    return list(enumerated.cases)


def verdict_of(case: CaseRef, status: Status) -> Verdict:
    """A verdict that already has a line of evidence."""
    address = str(case.address)
    return Verdict(
        op=case.op,
        case=address,
        content_hash="",
        dtype="f32",
        kernel="",
        status=status,
        inputs="(itself)",
        evidence=("old",),
    )


def explained(referee: Any, known: InProcess, op: str, fails: Callable[[CallRecord], bool]) -> list[Verdict]:
    """The verdicts on an op's cases of a kernel that is wrong where ``fails`` says so."""

    def judge(case: CaseRef) -> Verdict:
        return verdict_of(case, Status.WRONG_VALUE if fails(known.record(case)) else Status.PASSED)

    smallest = Shrinking(referee, OPTIONS, SEED, judge)
    return [smallest.explain(judge(case), case) for case in cases(known, op)]


@pytest.mark.slow
def test_the_first_failure_comes_with_the_smallest_call(referee: InProcess) -> None:
    """One line that names the op, the arguments and, as they are few, their values."""
    verdicts = explained(referee, referee, "relu.default", lambda record: rebuild(record, CPU).args[0].numel() >= 17)
    failures = [verdict for verdict in verdicts if verdict.status is Status.WRONG_VALUE]
    assert ("smallest failing call: relu.default(T([17], f32)), {}", "old") == failures[0].evidence
    assert {("old",)} == {verdict.evidence for verdict in verdicts if verdict is not failures[0]}


@pytest.mark.slow
def test_values_are_shown_where_they_are_few(referee: InProcess) -> None:
    """A scalar that matters, and tensors of one element."""
    verdicts = explained(referee, referee, "add.Tensor", lambda record: float(record.kwargs.get("alpha", 1)) < 0)  # type: ignore[arg-type]
    lines = [verdict.evidence[0] for verdict in verdicts if verdict.evidence != ("old",)]
    assert 1 == len(lines)
    assert lines[0].startswith("smallest failing call: add.Tensor(T([], f32), T([], f32)), {'alpha': -1")
    assert "with 0 = " in lines[0]


def test_time_outs_and_other_suites_are_not_shrunk(referee: InProcess) -> None:
    """What cannot be drawn again, or would cost a time limit with every proposal, stays as it is."""
    case = cases(referee, "relu.default")[0]
    opinfo = msgspec.structs.replace(case, address=msgspec.structs.replace(case.address, suite="opinfo"))
    shrinks = Shrinking(referee, OPTIONS, SEED, lambda _: pytest.fail("nothing is to be judged"))  # type: ignore[arg-type]
    for status, of in ((Status.TIMEOUT, case), (Status.PASSED, case), (Status.WRONG_VALUE, opinfo)):
        assert ("old",) == shrinks.explain(verdict_of(of, status), of).evidence


@pytest.mark.slow
def test_the_search_is_given_up_after_its_limit(referee: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is wrong everywhere costs a bounded number of executions."""
    monkeypatch.setattr(shrinking, "MAX_EXECUTIONS", 3)
    verdicts = explained(referee, referee, "mul.Tensor", lambda _: True)
    assert verdicts[0].evidence[0].startswith("smallest failing call: mul.Tensor(")
    feedback = [request.failed for request in referee.asked if isinstance(request, Feedback)]
    assert len(feedback) <= 3


def test_a_referee_that_dies_costs_the_shrinking_only(referee: InProcess) -> None:
    """The verdict stands, without the line."""

    class Dying:
        def ask(self, _request: Any, _reply_type: type[Any]) -> Proposal:
            raise RefereeDied("the process was ended by SIGSEGV")

    verdicts = explained(Dying(), referee, "relu.default", lambda _: True)
    assert {("old",)} == {verdict.evidence for verdict in verdicts}
