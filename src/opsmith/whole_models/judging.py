"""The judge of whole models: one case after another, each under one column after another."""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from opsmith.core.case import CaseAddress, digest
from opsmith.core.columns import EAGER, Column
from opsmith.core.run import ColumnResult, Options, TimedCase
from opsmith.core.timing import Timing, Undecided
from opsmith.core.verdict import Status, Verdict
from opsmith.devices import kind_of
from opsmith.errors import BadInput
from opsmith.evaluation.timing.statistics import (
    Precision,
    estimate,
    least_block_us,
    precisions_of,
    quantities_on,
    timing_of,
)
from opsmith.runner.clock.timed_pairs import KEY_BITS, Block, PairedBlocks, TooShort
from opsmith.runner.machine.device_lock import DeviceLock, default_folder
from opsmith.runner.machine.gpus import first_device
from opsmith.runner.protocol.lane import Waiting
from opsmith.whole_models.messages import (
    Answer,
    BlockRun,
    CompareAnswer,
    Compared,
    Done,
    LoadColumn,
    MakeReady,
    ModelCase,
    ModelPrepared,
    Open,
    Opened,
    PrepareModel,
    Ready,
    RenewInputs,
    RunBlock,
    Show,
    Shown,
)
from opsmith.whole_models.processes import Process, Unanswered, process

#: A timed block lasts for so many microseconds at least, and has so many calls at most.
BLOCK_US, MOST_CALLS = 20_000, 100
#: Calls before the first that counts: a captured CUDA graph is replayed from the third on.
WARM_UPS = 3
#: Empty blocks whose median is what a round trip to a process costs.
EMPTY_TRIPS = 15


class ModelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits, in seconds.

    Attributes:
        start_s: for importing torch and opening the device.
        referee_s: for building a model with eager's answer, and for each comparison.
        column_s: for a column's first call, in which it compiles, and for each later request.
    """

    start_s: float = 300.0
    referee_s: float = 600.0
    column_s: float = 1200.0


class _Prepared(NamedTuple):
    """A case with a referee that holds eager's answer to it."""

    case: ModelCase
    referee: Process
    record: Path
    said: ModelPrepared


class ModelJudge:
    """Judges models on one device.

    Attributes:
        opened: what there is.

    Args:
        options: of the run.
        limits: of time.
        waiting: told when another run has the device.

    Raises:
        BadInput: the device cannot be used.
    """

    def __init__(self, options: Options, *, limits: ModelLimits, waiting: Waiting | None = None) -> None:
        self._options, self._limits = options, limits
        self._order = random.Random()  # noqa: S311 - the order of blocks, no secret
        self._seen = kind_of(options.device).showing(first_device(options.device))
        try:
            with self._scratch() as scratch, process(scratch / "log", self._seen) as opening:
                self.opened = opening.ask(Open(options.device, options.suite), Opened, timeout_s=limits.start_s)
        except Unanswered as exc:
            raise BadInput(f"device {options.device} cannot be used: {exc}") from exc
        if self.opened.device.problem is not None:
            raise BadInput(f"device {options.device} cannot be used: {self.opened.device.problem}")
        self._lock = DeviceLock(default_folder(), self.opened.device.identity, waiting=waiting)

    def judge(
        self, case: ModelCase, columns: Sequence[Column], caches: Path, *, eager: ColumnResult | None = None
    ) -> Iterator[ColumnResult]:
        """Yield what is found of each column, in their order.

        Where eager is among them it goes first: what it differs by from eager in another process is noise.

        Args:
            case: what is asked.
            columns: the ways to run it.
            eager: what was found of that column before, of a run that is resumed.
            caches: a folder in which every column has one for what compilers keep, empty when the run begins: what
                they find out about the machine they find out once, and no column finds what another has compiled.
        """
        with self._scratch() as scratch, process(scratch / "referee.log", self._seen) as referee:
            record = scratch / "record"
            try:
                with self._lock.shared():
                    request = PrepareModel(case, str(record))
                    said = referee.ask(request, ModelPrepared, timeout_s=self._limits.referee_s)
            except Unanswered as problem:
                for column in columns:
                    yield _without_reference(case, column, problem)
                return
            prepared = _Prepared(case, referee, record, said)
            if said.void is not None:
                yield from (_void(prepared, column, said.void) for column in columns)
                return
            for column in columns:
                found = self._column(prepared, column, scratch, caches, _noise(eager))
                eager = found if column.name == EAGER else eager
                yield found

    def _column(
        self, prepared: _Prepared, column: Column, scratch: Path, caches: Path, noise: dict[str, float]
    ) -> ColumnResult:
        own = caches / column_hash("", column)
        own.mkdir(exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=scratch) as folder,
            process(Path(folder) / "log", self._seen) as candidate,
        ):
            load = LoadColumn(prepared.case, column, str(prepared.record), str(own))
            return self._judged(prepared, column, candidate, load, Path(folder) / "answer", noise)

    def _judged(
        self,
        prepared: _Prepared,
        column: Column,
        candidate: Process,
        load: LoadColumn,
        answer: Path,
        noise: dict[str, float],
    ) -> ColumnResult:
        verdict, graphs, first_call_s = _verdict(prepared, column), None, None
        try:
            with self._lock.shared():  # Nobody times while this compiles.
                candidate.ask(load, Done, timeout_s=self._limits.column_s)
                start = time.perf_counter()
                candidate.ask(Answer(), Done, timeout_s=self._limits.column_s)
                first_call_s = time.perf_counter() - start
                compared, graphs = self._compared(prepared, candidate, answer)
        except Unanswered as problem:
            verdict = msgspec.structs.replace(
                verdict, status=problem.status, detail=str(problem), evidence=problem.evidence
            )
            return ColumnResult(column=column.name, verdict=verdict)
        verdict = msgspec.structs.replace(
            verdict, status=compared.status, detail=compared.detail, figures=compared.figures
        )
        if verdict.status is not Status.PASSED or self._options.timing == "off":
            return ColumnResult(column=column.name, verdict=verdict, graphs=graphs)
        timed, peak_bytes = self._timed(prepared, verdict, candidate, noise)
        timed = msgspec.structs.replace(
            timed, first_call_s=first_call_s, reference_first_call_s=prepared.said.first_call_s
        )
        return ColumnResult(column=column.name, verdict=verdict, timed=timed, graphs=graphs, peak_bytes=peak_bytes)

    def _compared(self, prepared: _Prepared, candidate: Process, answer: Path) -> tuple[Compared, int | None]:
        """Compare the first answer, and a later one if it is not the same to the bit.

        Raises:
            Unanswered: the column has failed, or the referee.
        """
        first = candidate.ask(Show(str(answer)), Shown, timeout_s=self._limits.column_s)
        compared = self._ask_referee(prepared, answer)
        if compared.status is not Status.PASSED:
            return compared, first.graphs
        for _ in range(WARM_UPS):
            candidate.ask(Answer(), Done, timeout_s=self._limits.column_s)
        later = candidate.ask(Show(str(answer)), Shown, timeout_s=self._limits.column_s)
        return compared if later.digest == first.digest else self._ask_referee(prepared, answer), later.graphs

    def _ask_referee(self, prepared: _Prepared, answer: Path) -> Compared:
        request = CompareAnswer(str(answer), self._options.tolerance, self._options.layout)
        try:
            return prepared.referee.ask(request, Compared, timeout_s=self._limits.referee_s)
        except Unanswered as problem:
            detail = f"the referee could not compare: {problem}"
            raise Unanswered(Status.REFERENCE_FAILED, detail, problem.evidence) from problem

    def _timed(
        self, prepared: _Prepared, verdict: Verdict, candidate: Process, noise: dict[str, float]
    ) -> tuple[TimedCase, int | None]:
        timings: list[Timing] = []
        undecided: list[Undecided] = []
        problems: list[str] = []
        peak_bytes = values = None
        options = self._options
        quantities = quantities_on(options.device)
        precisions = precisions_of(options.timing, quantities, pairs=options.timing_pairs, whole_models=True)
        try:
            with self._lock.exclusive():
                ready = prepared.referee.ask(MakeReady(MOST_CALLS), Ready, timeout_s=self._limits.referee_s)
                values = ready.values
                request = MakeReady(MOST_CALLS, ready.variations)
                peak_bytes = candidate.ask(request, Ready, timeout_s=self._limits.column_s).peak_bytes
                pair = _TimedPair(prepared.referee, candidate, self._order, self._limits.column_s)
                for quantity, precision in precisions.items():
                    found = pair.time(quantity, precision, noise.get(quantity, 0.0))
                    if found is None:
                        problems.append(f"{quantity}: the time on the device cannot be told from the host's")
                    elif isinstance(found, TooShort):
                        undecided.append(found.undecided)
                    else:
                        timings.append(found)
        except Unanswered as problem:
            problems.append(f"while it was timed: {problem}")
        timed = TimedCase(
            op=verdict.op,
            case=verdict.case,
            kernel=verdict.kernel,
            timings=tuple(timings),
            undecided=tuple(undecided),
            problem="; ".join(problems) or None,
            values=values,
        )
        return timed, peak_bytes

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="opsmith-models-") as folder:
            yield Path(folder)


class _TimedPair:
    """Eager and a column, of which one runs a block while the other is idle."""

    def __init__(self, referee: Process, candidate: Process, order: random.Random, timeout_s: float) -> None:
        self._sides, self._order, self._timeout_s = (referee, candidate), order, timeout_s

    def time(self, quantity: str, precision: Precision, noise: float) -> Timing | TooShort | None:
        """Measure one quantity until its interval is narrow; None where it cannot be told from the host's time."""
        trips = [self._empty_trip_us(side) for side in self._sides] if quantity == "E" else [0.0, 0.0]
        tried = [self._block(number, 1, quantity, trips, self._order.getrandbits(KEY_BITS)) for number in (0, 1)]
        known = [block.call_at_most_us for block in tried if block is not None]
        if len(known) < len(tried):
            return None
        calls = max(1, min(MOST_CALLS, math.ceil(BLOCK_US / min(known))))
        blocks = PairedBlocks(precision)
        start, next_look = time.monotonic(), precision.least_pairs
        while True:
            pair = self._pair(calls, quantity, trips)
            if pair is None:
                return None
            blocks.add(*pair)
            if blocks.are_too_short:
                if calls == MOST_CALLS:
                    return blocks.what_is_too_short(quantity)
                calls = MOST_CALLS
                blocks = PairedBlocks(precision)
            pairs = len(blocks.measured[0])
            if pairs < next_look:
                continue
            found = estimate(*blocks.measured)
            if precision.ends(found, noise, pairs=pairs, spent_s=time.monotonic() - start):
                break
            next_look = precision.next_look(pairs)
        return timing_of(
            *blocks.measured,
            found,
            precision=precision,
            noise=noise,
            calls_per_block=calls,
            quantity=quantity,
            discarded=0,
            too_short=len(blocks.too_short),
        )

    def _pair(self, calls: int, quantity: str, trips: Sequence[float]) -> tuple[Block, Block] | None:
        """A block of each side, in random order, on the same values, which no call has met."""
        key = self._order.getrandbits(KEY_BITS)
        blocks = {number: self._block(number, calls, quantity, trips, key) for number in self._order.sample((0, 1), 2)}
        reference, candidate = blocks[0], blocks[1]
        return None if reference is None or candidate is None else (reference, candidate)

    def _block(self, number: int, calls: int, quantity: str, trips: Sequence[float], key: int) -> Block | None:
        """How long a block takes: of E by the judge's clock, less an empty round trip; of K by the device's."""
        self._sides[number].ask(RenewInputs(key, calls), Done, timeout_s=self._timeout_s)
        start = time.perf_counter()
        reply = self._sides[number].ask(RunBlock(calls, quantity), BlockRun, timeout_s=self._timeout_s)
        wall_us = (time.perf_counter() - start) * 1e6 - trips[number]
        taken_us = reply.own_us if quantity == "K" else wall_us
        return None if taken_us is None else Block(calls, taken_us, least_block_us(quantity, max(trips)))

    def _empty_trip_us(self, side: Process) -> float:
        trips = []
        for _ in range(EMPTY_TRIPS):
            start = time.perf_counter()
            side.ask(RunBlock(0, "E"), BlockRun, timeout_s=self._timeout_s)
            trips.append((time.perf_counter() - start) * 1e6)
        return statistics.median(trips)


def address_of(case: ModelCase) -> CaseAddress:
    """Where a case comes from."""
    return CaseAddress(case.suite, case.task, case.dtype, "autocast" if case.autocast else "inputs", 0, 0)


def column_hash(task: str, column: Column) -> str:
    """What stands for a kernel's content hash in the verdicts on a column."""
    return digest(msgspec.json.encode((task, column.how, column.what)))


def _noise(eager: ColumnResult | None) -> dict[str, float]:
    """By quantity, twice what eager differed by from eager in another process, as a share."""
    if eager is None or eager.timed is None:
        return {}
    return {timing.quantity: math.expm1(2 * abs(math.log(timing.speedup))) for timing in eager.timed.timings}


def _verdict(prepared: _Prepared, column: Column) -> Verdict:
    """The verdict of a case that has not been judged yet."""
    return Verdict(
        op=prepared.case.task,
        case=str(address_of(prepared.case)),
        content_hash=prepared.said.content_hash,
        dtype=prepared.case.dtype,
        kernel=column_hash(prepared.case.task, column),
        status=Status.NOT_RUN,
        inputs=prepared.said.inputs,
        comparison="value",
    )


def _void(prepared: _Prepared, column: Column, reason: str) -> ColumnResult:
    """What is found of every column where a model asks nothing; none is run."""
    verdict = msgspec.structs.replace(_verdict(prepared, column), status=Status.VOID, detail=reason)
    return ColumnResult(column=column.name, verdict=verdict)


def _without_reference(case: ModelCase, column: Column, problem: Unanswered) -> ColumnResult:
    verdict = Verdict(
        op=case.task,
        case=str(address_of(case)),
        content_hash="",
        dtype=case.dtype,
        kernel=column_hash(case.task, column),
        status=Status.REFERENCE_FAILED,
        detail=str(problem),
        evidence=problem.evidence,
    )
    return ColumnResult(column=column.name, verdict=verdict)
