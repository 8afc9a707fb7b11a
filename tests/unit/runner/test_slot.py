"""What a slot makes of the ends of its worker and its referee; both are stand-ins here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import torch

from opsmith.calls.outcomes import HeldOutcome
from opsmith.core.case import CaseAddress, CaseRef, Outcome, SummarisedOutcome
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.core.run import Options
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.errors import RefereeFailed
from opsmith.runner.child.outcome_files import read_outcome, summarised
from opsmith.runner.judge.admission import Admission
from opsmith.runner.judge.slot import ASKED_BY_ITSELF, MAX_CRASHES, MAX_TIMEOUTS, Slot
from opsmith.runner.processes.candidate import Candidate
from opsmith.runner.processes.failures import RefereeDied, WorkerFailed
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import (
    Compare,
    Compared,
    ComparedCase,
    MakeVariants,
    Prepare,
    Prepared,
    PreparedCase,
    VariantsMade,
)
from opsmith.runner.protocol.worker_messages import (
    Answered,
    Noticed,
    OutcomesShown,
    Raised,
    Returned,
    RunCalls,
    ShowOutcomes,
)

S = Status

#: What a stand-in does for one case, told by its number: the candidate raises, dies, or returns.
Act = Callable[[int], Raised | WorkerFailed | None]


def died(status: Status) -> WorkerFailed:
    """A worker that ended with this status."""
    return WorkerFailed(status, "as it was told to", ())


def raised(kind: str) -> Raised:
    """A candidate that raised."""
    return Raised(kind, "ValueError: as it was told to", "Traceback")


class StandInWorker:
    """Answers as it is told; counts what it is asked.

    Attributes:
        loads: how often a kernel was loaded into a fresh worker.
        ran: the numbers of the cases run, in order.
    """

    def __init__(self, act: Act, load: Raised | WorkerFailed | None = None) -> None:
        self._act = act
        self._load = load
        self._is_loaded = False
        self.load_changes: tuple[str, ...] = ()
        self.notices: tuple[Noticed, ...] = ()
        self.loads = 0
        self.ran: list[int] = []
        self.gave_back = 0

    def give_memory_back(self) -> None:
        self.gave_back += 1

    def resize(self, ranks: int | None) -> None:
        assert ranks is None

    def call_to_send(self, case: CaseRef, spool: Spool) -> bytes:
        return spool.read(case)

    def outcome_folders(self) -> tuple[str, tuple[str, ...]]:
        return "/nowhere", ()

    def load(self, kernel: Kernel, root: Path | None, schema: OpSchema, policy: str | None) -> Raised | None:
        if self._is_loaded:
            return None
        self.loads += 1
        if isinstance(self._load, WorkerFailed):
            raise self._load
        self._is_loaded = self._load is None
        return self._load

    def ask(self, request: RunCalls, reply_types: tuple[type[Any], ...]) -> Answered:
        replies = []
        for call in request.calls:
            assert isinstance(call.call, bytes)
            number = int(call.call)
            self.ran.append(number)
            found = self._act(number)
            if isinstance(found, WorkerFailed):
                self.retire()
                raise found
            replies.append(found or Returned((msgspec.Raw(b"\x00"),) * call.repeats))
        return Answered(tuple(replies))

    def retire(self) -> None:
        self._is_loaded = False


class StandInReferee:
    """Knows that every case is right, except that it does as told for some."""

    def __init__(self, refuses: Callable[[int], Exception | str | None] = lambda number: None) -> None:
        self._refuses = refuses
        self.statuses: dict[int, Status] = {}
        self._numbers: list[int] = []
        self.gave_back = 0

    def give_memory_back(self) -> None:
        self.gave_back += 1

    def ask(self, request: Prepare | Compare, reply_type: type[Any]) -> Prepared | Compared:
        self.send(request)
        return self.receive(reply_type)

    def send(self, request: Prepare | Compare) -> None:
        self._request = request

    def receive(self, _reply_type: type[Any]) -> Prepared | Compared:
        request = self._request
        if isinstance(request, Prepare):
            self._numbers = [item.case.address.sample for item in request.cases]
            return Prepared(tuple(map(self._prepared, self._numbers)))
        return Compared(
            {
                place: ComparedCase(self.statuses.get(self._numbers[place], S.PASSED), "", None, layout_differs=False)
                for place in request.outcomes
            },
            {},
        )

    def _prepared(self, number: int) -> PreparedCase:
        found = self._refuses(number)
        if isinstance(found, Exception):
            raise found
        return PreparedCase(found, 1, "value", f"case {number}")


class StandInSpool:
    """The serialized call of a case is its number."""

    def read(self, case: CaseRef) -> bytes:
        return str(case.address.sample).encode()

    def read_again(self, case: CaseRef) -> None:
        """No case has other values."""
        del case


def case(number: int, *, expects_error: bool = False) -> CaseRef:
    """The case of that number."""
    return CaseRef(
        address=CaseAddress("opinfo", "relu", "f32", "sample", number, 0),
        op="relu.default",
        signature=str(number),
        content_hash=str(number),
        size_bytes=4,
        spool=0,
        offset=0,
        length=1,
        expects_error=expects_error,
    )


def job(count: int, earlier: tuple[Verdict, ...] = ()) -> Job:
    """Cases of one kernel, those with an earlier verdict left out."""
    return Job(
        schema=OpSchema(
            name="relu.default", schema="aten::relu(Tensor self) -> Tensor", variant=Variant.FUNCTIONAL, tags=()
        ),
        kernel=Kernel(task="relu.default", backend="test", loader=Loader.FILE, entry="relu.py:relu"),
        root=None,
        cases=tuple(case(number) for number in range(len(earlier), count)),
        counts={},
        earlier=earlier,
    )


def judge(
    worker: StandInWorker, referee: StandInReferee | None = None, count: int = 12, earlier: tuple[Verdict, ...] = ()
) -> list[Verdict]:
    """The verdicts of a slot on ``count`` cases, the earlier ones among them."""
    return [*earlier, *slot(worker, referee).judge(job(count, earlier))]


class OpenDoor:
    """Admits everybody at once."""

    def beside_others(self, _size_bytes: int, _give_back: Callable[[], None]) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def by_itself(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


def slot(worker: StandInWorker, referee: StandInReferee | None = None) -> Slot:
    """A slot with stand-ins."""
    return Slot(
        cast("RefereeLink", referee or StandInReferee()),
        cast("Candidate", worker),
        cast("Spool", StandInSpool()),
        Options(suite="opinfo", backend="test", device="cpu", dtypes=("f32",)),
        1,
        cast("Admission", OpenDoor()),
    )


def statuses(verdicts: list[Verdict]) -> list[Status]:
    """The status of each, in order."""
    return [verdict.status for verdict in verdicts]


def test_no_kernel_runs_for_a_void_problem() -> None:
    """Its cases have their verdict, the plan's reason in it, and the worker has loaded nothing."""
    worker = StandInWorker(lambda number: None)
    verdicts = list(slot(worker).judge(msgspec.structs.replace(job(3), void="constant: zero", integrity=True)))
    assert [(S.VOID, "constant: zero")] * 3 == [(verdict.status, verdict.detail) for verdict in verdicts]
    assert ([], 0) == (worker.ran, worker.loads)


def test_every_case_gets_one_verdict_in_order() -> None:
    """Judged in chunks or alone."""
    worker = StandInWorker(lambda number: None)
    verdicts = judge(worker, count=100)
    assert [str(case(number).address) for number in range(100)] == [verdict.case for verdict in verdicts]
    assert {S.PASSED} == set(statuses(verdicts))
    assert list(range(100)) == worker.ran
    assert 1 == worker.loads


@pytest.mark.parametrize(
    ("status", "limit"),
    [
        (S.TIMEOUT, MAX_TIMEOUTS),
        (S.CRASHED, MAX_CRASHES),
        (S.OUT_OF_MEMORY, MAX_CRASHES),
        (S.OUTPUT_LIMIT, MAX_CRASHES),
    ],
)
def test_a_kernel_that_keeps_ending_its_worker_is_given_up(status: Status, limit: int) -> None:
    """Its remaining cases are NOT_RUN."""
    worker = StandInWorker(lambda number: died(status))
    assert [status] * limit + [S.NOT_RUN] * (12 - limit) == statuses(judge(worker))
    assert list(range(limit)) == worker.ran


def test_deaths_of_every_kind_count_together() -> None:
    """Three are enough, wherever they are; a time-out among them counts for itself."""
    ends = {1: S.CRASHED, 4: S.TIMEOUT, 6: S.OUT_OF_MEMORY, 8: S.OUTPUT_LIMIT}
    worker = StandInWorker(lambda number: died(ends[number]) if number in ends else None)
    expected = [ends.get(number, S.PASSED) for number in range(9)] + [S.NOT_RUN] * 3
    assert expected == statuses(judge(worker))


@pytest.mark.parametrize("number", range(12))
def test_a_case_that_ends_the_worker_costs_no_other_case(number: int) -> None:
    """Wherever in a chunk it is, the cases around it are judged."""
    worker = StandInWorker(lambda each: died(S.CRASHED) if each == number else None)
    expected = [S.PASSED] * 12
    expected[number] = S.CRASHED
    assert expected == statuses(judge(worker))


@pytest.mark.parametrize("death", [RefereeDied("killed"), RefereeFailed("a bug\nTraceback")])
@pytest.mark.parametrize("number", [0, 5])
def test_a_case_that_ends_the_referee_costs_no_other_case(number: int, death: Exception) -> None:
    """Eager itself may die on an input; the kernel is not blamed for it."""
    referee = StandInReferee(lambda each: death if each == number else None)
    expected = [S.PASSED] * 12
    expected[number] = S.REFERENCE_FAILED
    assert expected == statuses(judge(StandInWorker(lambda each: None), referee))


def test_a_kernel_that_does_not_load_is_loaded_once() -> None:
    """Every case gets the verdict of the first."""
    worker = StandInWorker(lambda number: None, load=raised("error"))
    verdicts = judge(worker)
    assert [S.LOAD_FAILED] * 12 == statuses(verdicts)
    assert 12 == len({verdict.case for verdict in verdicts})
    assert (1, []) == (worker.loads, worker.ran)


def test_a_kernel_that_hangs_while_loading_is_loaded_once() -> None:
    """Loading again would take as long again."""
    worker = StandInWorker(lambda number: None, load=died(S.TIMEOUT))
    assert [S.TIMEOUT] + [S.NOT_RUN] * 11 == statuses(judge(worker))
    assert 1 == worker.loads


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("unsupported", S.UNSUPPORTED),
        ("memory", S.OUT_OF_MEMORY),
        ("error", S.ERROR),
        ("a kind that a kernel made up", S.ERROR),
    ],
)
def test_what_a_candidate_raises_is_its_status(kind: str, status: Status) -> None:
    """The worker lives on, so the other cases are judged."""
    worker = StandInWorker(lambda number: raised(kind) if number == 3 else None)
    expected = [S.PASSED] * 12
    expected[3] = status
    assert expected == statuses(judge(worker))


def test_a_worker_that_spoke_out_of_protocol_is_asked_nothing_more() -> None:
    """What it says next could answer nothing that is asked."""
    referee = StandInReferee()
    referee.statuses = {0: S.CRASHED}
    worker = StandInWorker(lambda number: None)
    assert [S.CRASHED] + [S.PASSED] * 11 == statuses(judge(worker, referee))
    assert 2 == worker.loads


def test_a_case_that_eager_refuses_is_not_held_against_the_kernel() -> None:
    """It took these arguments when the suite was recorded; the kernel does not see them."""
    worker = StandInWorker(lambda number: None)
    found = statuses(judge(worker, StandInReferee(lambda number: "RuntimeError: no" if number == 2 else None)))
    assert S.REFERENCE_FAILED == found[2]
    assert 2 not in worker.ran


@pytest.mark.parametrize(
    ("act", "load"),
    [
        (lambda number: died(S.TIMEOUT), None),
        (lambda number: died(S.CRASHED) if number % 2 else None, None),
        (lambda number: raised("memory"), None),
        (lambda number: None, died(S.TIMEOUT)),
        (lambda number: None, died(S.CRASHED)),
        (lambda number: None, raised("error")),
    ],
    ids=["hangs", "crashes at times", "out of memory", "hangs in its import", "crashes in its import", "no import"],
)
@pytest.mark.parametrize("cut", range(7))
def test_a_run_that_was_cut_ends_as_if_it_had_not(act: Act, load: Raised | WorkerFailed | None, cut: int) -> None:
    """Earlier verdicts count for the limits as they did when they were found."""
    whole = judge(StandInWorker(act, load))
    assert statuses(whole) == statuses(judge(StandInWorker(act, load), earlier=tuple(whole[:cut])))


def outcome(text: str) -> Outcome:
    """One that says whose it is and how good: ``eager 3``, ``rounded 3`` or ``wrong 3``."""
    return Outcome(structure=text, outputs=(), changed={})


class SummarisingWorker(StandInWorker):
    """Tells its outcomes by summaries, and in full when it is asked.

    Attributes:
        shown: the numbers of the outcomes that it was asked for, request by request.
        how_to_show: makes the reply from these outcomes.
    """

    def __init__(self, answers: dict[int, str], act: Act = lambda number: None) -> None:
        super().__init__(act)
        self._answers = answers
        self._outcomes: list[Outcome] = []
        self.shown: list[tuple[int, ...]] = []
        self.how_to_show: Callable[[list[Outcome]], OutcomesShown | Raised] = in_full

    def ask(self, request: RunCalls | ShowOutcomes, reply_types: tuple[type[Any], ...]) -> Any:
        if isinstance(request, ShowOutcomes):
            self.shown.append(request.numbers)
            return self.how_to_show([self._outcomes[number] for number in request.numbers])
        answered = super().ask(request, reply_types)
        self._outcomes.clear()
        return Answered(
            tuple(
                [
                    reply if isinstance(reply, Raised) else self._told(int(cast("bytes", call.call)), call.repeats)
                    for call, reply in zip(request.calls, answered.replies, strict=True)
                ]
            )
        )

    def _told(self, number: int, repeats: int) -> Returned:
        text = f"{self._answers.get(number, 'eager')} {number}"
        self._outcomes += [outcome(text)] * repeats
        return Returned((summarised(text.encode()),) * repeats)


def in_full(outcomes: list[Outcome]) -> OutcomesShown:
    """What a worker should answer."""
    return OutcomesShown(tuple([msgspec.Raw(msgspec.msgpack.encode(each)) for each in outcomes]))


class SummaryReferee(StandInReferee):
    """Knows eager's summaries, and what is right though it is not eager's.

    Args:
        refuses: as of :class:`StandInReferee`.
        repeats: executions of each case by its number, 1 where there is none.
    """

    def __init__(
        self,
        refuses: Callable[[int], Exception | str | None] = lambda number: None,
        repeats: dict[int, int] | None = None,
    ) -> None:
        super().__init__(refuses)
        self._repeats = repeats or {}

    def receive(self, reply_type: type[Any]) -> Prepared | Compared:
        request = self._request
        if isinstance(request, Prepare):
            return super().receive(reply_type)
        found = {place: self._compared(place, raws) for place, raws in request.outcomes.items()}
        return Compared(
            {
                place: ComparedCase(status, "", None, layout_differs=False)
                for place, status in found.items()
                if status is not None
            },
            {},
            unclear=tuple([place for place, status in found.items() if status is None]),
        )

    def _compared(self, place: int, raws: tuple[msgspec.Raw, ...]) -> Status | None:
        number = self._numbers[place]
        assert self._repeats.get(number, 1) == len(raws)
        told = [read_outcome(raw, Path("/nowhere"), torch.device("cpu")) for raw in raws]
        if any(isinstance(each, SummarisedOutcome) for each in told):
            right = SummarisedOutcome(f"eager {number}".encode())
            return S.PASSED if all(each == right for each in told) else None
        right_ones = (outcome(f"eager {number}"), outcome(f"rounded {number}"))
        whole = [each.outcome() for each in told if isinstance(each, HeldOutcome)]
        return S.PASSED if all(each in right_ones for each in whole) else S.WRONG_VALUE

    def _prepared(self, number: int) -> PreparedCase:
        return msgspec.structs.replace(super()._prepared(number), repeats=self._repeats.get(number, 1))


def judge_summaries(
    worker: SummarisingWorker, referee: SummaryReferee, *, bad_calls: tuple[int, ...] = ()
) -> list[Status]:
    """The statuses of eight cases on a device, where they are judged together."""
    slot = Slot(
        cast("RefereeLink", referee),
        cast("Candidate", worker),
        cast("Spool", StandInSpool()),
        Options(suite="opinfo", backend="test", device="cuda", dtypes=("f32",)),
        1,
        cast("Admission", OpenDoor()),
    )
    cases = tuple(case(number, expects_error=number in bad_calls) for number in range(8))
    return statuses(list(slot.judge(msgspec.structs.replace(job(8), cases=cases))))


def test_outcomes_with_eagers_summaries_pass_without_being_sent() -> None:
    """They stay on the device."""
    worker = SummarisingWorker({})
    assert [S.PASSED] * 8 == judge_summaries(worker, SummaryReferee())
    assert [] == worker.shown


def test_only_outcomes_with_another_summary_are_asked_for() -> None:
    """Another one does not mean wrong: the outcomes themselves decide."""
    worker = SummarisingWorker({2: "rounded", 5: "wrong", 6: "rounded"})
    expected = [S.PASSED] * 8
    expected[5] = S.WRONG_VALUE
    assert expected == judge_summaries(worker, SummaryReferee())
    assert [(2, 5, 6)] == worker.shown
    assert 1 == worker.loads


def test_outcomes_are_counted_over_all_that_returned() -> None:
    """A bad call that returned has one, a call that raised has none, and a repeated one has several."""
    worker = SummarisingWorker(
        {4: "rounded", 6: "wrong", 7: "rounded"}, lambda number: raised("error") if number in (0, 3) else None
    )
    referee = SummaryReferee(lambda number: "RuntimeError: no" if number in (1, 3) else None, repeats={2: 2, 4: 3})
    found = judge_summaries(worker, referee, bad_calls=(1, 3))
    expected = [S.PASSED] * 8
    expected[0], expected[1], expected[6] = S.ERROR, S.DID_NOT_RAISE, S.WRONG_VALUE
    assert expected == found
    # Case 1 is outcome 0, case 2 is 1 and 2, case 4 is 3 to 5.
    assert [(3, 4, 5, 7, 8)] == worker.shown


@pytest.mark.parametrize(
    "how_to_show",
    [
        lambda outcomes: OutcomesShown(tuple([summarised(each.structure.encode()) for each in outcomes])),
        lambda outcomes: in_full(outcomes[1:]),
        lambda outcomes: in_full(outcomes * 2),
        lambda outcomes: raised("error"),
    ],
    ids=["summaries again", "too few", "too many", "raises"],
)
def test_a_worker_that_does_not_show_its_outcomes_has_crashed(
    how_to_show: Callable[[list[Outcome]], OutcomesShown | Raised],
) -> None:
    """It is asked nothing more; the cases beside it are judged by another one."""
    worker = SummarisingWorker({5: "rounded"})
    worker.how_to_show = how_to_show
    expected = [S.PASSED] * 8
    expected[5] = S.CRASHED
    assert expected == judge_summaries(worker, SummaryReferee())
    assert 3 == worker.loads


def test_a_kernel_that_did_not_load_is_not_asked_variants_when_it_is_taken_up_again() -> None:
    """As it would not have been if nobody had interrupted."""
    [failed, *_] = judge(StandInWorker(lambda number: None, load=raised("error")), count=1)
    assert Status.LOAD_FAILED is failed.status
    rest = msgspec.structs.replace(job(1, (failed,)), integrity=True, all_cases=(case(0),))
    assert [] == list(slot(StandInWorker(lambda number: None, load=raised("error"))).judge(rest))


class VaryingReferee(StandInReferee):
    """Makes variants of the labels that it is given, numbered from 100.

    Attributes:
        asked: the request for them.
    """

    def __init__(self, labels: tuple[str, ...]) -> None:
        super().__init__()
        self._labels = labels
        self.asked: MakeVariants | None = None

    def ask(self, request: Any, reply_type: type[Any]) -> Any:
        if not isinstance(request, MakeVariants):
            return super().ask(request, reply_type)
        self.asked = request
        numbered = enumerate(self._labels, 100)
        return VariantsMade(tuple(msgspec.structs.replace(case(n), variant=label) for n, label in numbered))


def test_a_kernel_too_slow_for_large_tensors_is_not_wrong() -> None:
    """It declines them as it were, gets no more of them, and the limits of its other calls stay as they are."""
    hangs = StandInWorker(lambda number: died(S.TIMEOUT) if number >= 100 and number != 103 else None)
    referee = VaryingReferee(("vast", "many_rows", "signed", "tiny", "large"))
    varied = msgspec.structs.replace(job(1), integrity=True, all_cases=(case(0),))
    verdicts = [v for v in slot(hangs, referee).judge(varied) if v.part is Part.VARIANT]
    assert ["vast", "signed", "tiny", "large"] == [verdict.variant for verdict in verdicts]
    assert [S.UNSUPPORTED, S.TIMEOUT, S.PASSED, S.TIMEOUT] == statuses(verdicts)


@pytest.mark.parametrize(
    ("dsl", "source", "large"),
    [("torch", "import ctypes", 1), ("triton", "import triton", 0), ("torch", "from .help import triton", 0)],
)
def test_an_interpreter_is_asked_nothing_large(dsl: str, source: str, large: int, tmp_path: Path) -> None:
    """Triton's takes a millisecond for each program, and a helper's file may hold the kernels."""
    (tmp_path / "relu.py").write_text(source)
    kernel = Kernel(task="relu.default", backend="test", loader=Loader.FILE, entry="relu.py:relu", dsl=dsl)
    kernel = msgspec.structs.replace(kernel, files={"relu.py": "0"})
    referee = VaryingReferee(())
    varied = msgspec.structs.replace(job(1), integrity=True, all_cases=(case(0),), kernel=kernel, root=tmp_path)
    list(slot(StandInWorker(lambda _: None), referee).judge(varied))
    assert referee.asked is not None
    assert large == referee.asked.large


NO_MEMORY = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


class Device(OpenDoor):
    """Counts who is at it alone, which is what makes room: ``lacks`` says so until then, or for ever.

    Attributes:
        alone: how often somebody was.
    """

    def __init__(self, *, for_ever: bool = False) -> None:
        self.alone = 0
        self._for_ever = for_ever

    def lacks(self, number: int) -> bool:
        return number == 3 and (self._for_ever or not self.alone)

    def by_itself(self) -> AbstractContextManager[None]:
        self.alone += 1
        return super().by_itself()


def judge_at(device: Device, worker: StandInWorker, referee: StandInReferee | None = None) -> list[Verdict]:
    """The verdicts on twelve cases of a slot at a device."""
    found = Slot(
        cast("RefereeLink", referee or StandInReferee()),
        cast("Candidate", worker),
        cast("Spool", StandInSpool()),
        Options(suite="opinfo", backend="test", device="cpu", dtypes=("f32",)),
        1,
        cast("Admission", device),
    )
    return list(found.judge(job(12)))


@pytest.mark.parametrize(
    "problem",
    [
        Raised("memory", NO_MEMORY, "Traceback"),
        Raised("device", "AcceleratorError: CUDA error: out of memory", "Traceback"),
        Raised(
            "error", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`", "Traceback"
        ),
    ],
    ids=["allocator", "driver", "library"],
)
def test_a_kernel_that_lacks_memory_is_asked_again_by_itself(problem: Raised) -> None:
    """Others had it, which says nothing about the kernel; what is written is what it does then."""
    device = Device()
    worker = StandInWorker(lambda number: problem if device.lacks(number) else None)
    assert [S.PASSED] * 12 == statuses(judge_at(device, worker))
    assert (1, 2, 1) == (device.alone, worker.loads, worker.gave_back)


@pytest.mark.parametrize("problem", [NO_MEMORY, RefereeFailed(NO_MEMORY + "\nTraceback"), RefereeDied(NO_MEMORY)])
def test_a_case_for_which_eager_lacks_memory_is_asked_again_by_itself(problem: Exception | str) -> None:
    """In whichever way it is told."""
    device = Device()
    referee = StandInReferee(lambda number: problem if device.lacks(number) else None)
    assert [S.PASSED] * 12 == statuses(judge_at(device, StandInWorker(lambda number: None), referee))
    assert (1, 1) == (device.alone, referee.gave_back)


def test_a_case_that_lacks_memory_by_itself_is_asked_no_third_time() -> None:
    """Then it is the case's own affair, and the verdict says that it was tried."""
    device = Device(for_ever=True)
    worker = StandInWorker(lambda number: Raised("memory", NO_MEMORY, "Traceback") if device.lacks(number) else None)
    found = judge_at(device, worker)
    assert [S.OUT_OF_MEMORY if number == 3 else S.PASSED for number in range(12)] == statuses(found)
    assert ("Traceback", ASKED_BY_ITSELF) == found[3].evidence
    assert 1 == device.alone


def test_a_kernel_that_needs_more_than_a_worker_may_have_is_not_asked_again() -> None:
    """Its limit is its own, whatever others take."""
    device = Device()
    worker = StandInWorker(lambda number: died(S.OUT_OF_MEMORY) if device.lacks(number) else None)
    assert S.OUT_OF_MEMORY == judge_at(device, worker)[3].status
    assert 0 == device.alone
