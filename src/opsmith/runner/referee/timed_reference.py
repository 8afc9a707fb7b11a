"""The reference's side of a timed pair: what runs, with how many sets of inputs, and eager's answer to any call."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch

from opsmith.calls.live import CALL_DECODER, LiveCall, live_call, make_storages
from opsmith.calls.observer import Observer
from opsmith.calls.seeding import random_state
from opsmith.core.case import CallRecord, OutputTensor, storage_size
from opsmith.core.fresh_values import Redraw, Variation
from opsmith.core.op import TaskKind
from opsmith.core.timing import Work
from opsmith.devices import kind_of
from opsmith.errors import BaselineUnavailable
from opsmith.evaluation.comparisons.correctness import CaseUnderJudgement
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.criteria.rules import rule_for
from opsmith.evaluation.eager.answers import answers_of
from opsmith.evaluation.eager.reference import repetitions
from opsmith.evaluation.roofline.work import work_of
from opsmith.evaluation.timing.baselines import Preparable, baseline_function
from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.inputs import TimedInputs, without_gaps
from opsmith.evaluation.timing.modules import timed_function
from opsmith.evaluation.timing.variation import (
    FIXED,
    MOST_DRAWN_SETS,
    fixed_numbers,
    fixed_where_shared,
    freshness,
    variations,
)
from opsmith.runner.child.timed_blocks import ready, timed_block
from opsmith.runner.protocol.referee_messages import Compared, CompareTimed
from opsmith.runner.protocol.timing_messages import (
    BLOCK_US,
    BLOCK_US_CPU,
    BlockTimed,
    MakeReady,
    PrepareTiming,
    TimeBlock,
    TimingPrepared,
)
from opsmith.runner.referee.candidate_outcomes import compared, result_bytes, tensor_bytes
from opsmith.suites.valid_inputs import known_domains
from opsmith.tasks import registry

#: What no kernel undercuts: as a node of a graph, and for what it moves, bytes a microsecond.
SHORTEST_KERNEL_US = 1.2
FASTEST_BYTES_A_US = 8e6
#: In a block a call is faster than the first ones were. On a CPU, where a set of inputs costs nothing until a block has
#: that many calls, a candidate may be so many times as fast as eager and have blocks of the wanted length.
SPARE_CALLS = 2
SPARE_CALLS_CPU = 32
#: Calls whose quickest says how long one takes its caller, where they are short: a busy machine held single ones up by
#: a hundred times.
SIZING_CALLS = 3
SHORT_CALL_US = 20_000.0
#: All sets of a timed call's inputs and results together, as a share of a device's memory; both sides have them, of
#: each call that is timed together.
MAX_TIMED_SHARE = 1 / 64
MAX_TIMED_BYTES_CPU = 512 << 20


class TimedReference:
    """One timed call of the referee's.

    Args:
        request: which call, with how many sets of inputs, against which baseline.
        device: where it runs.

    Attributes:
        prepared: what the judge is told.
        call: what runs, with its inputs.

    Raises:
        BaselineUnavailable: the baseline cannot serve the call.
        torch.AcceleratorError: the call has lost the device.
    """

    def __init__(self, request: PrepareTiming, device: torch.device) -> None:
        self._device = device
        self._verified: tuple[tuple[int, int], CaseUnderJudgement | None] | None = None
        record = CALL_DECODER.decode(request.call)
        self._eager, record = timed_function(registry.reference(record.op), record, device)
        record = without_gaps(record)
        storages = make_storages([record], device)[0]
        slots, work = self._size_up(record, storages, request)
        if registry.schema_of(record.op).kind.on_ranks:
            found = fixed_where_shared(variations(record, storages, {}), record)
        else:
            found = variations(record, storages, known_domains(record))
        if any(variation.how is Redraw.DRAWN for variation in found):
            slots = min(slots, MOST_DRAWN_SETS)
        found, prepared_s = self._prepared(record, storages, request, slots, found)
        first_call_s = prepared_s + self.call.first_call_s
        values = freshness(found, storages)
        self.prepared = TimingPrepared(slots, found, first_call_s, self.call.peak_bytes, work, values)

    def _prepared(
        self,
        record: CallRecord,
        storages: Sequence[torch.UntypedStorage],
        request: PrepareTiming,
        slots: int,
        found: tuple[Variation, ...],
    ) -> tuple[tuple[Variation, ...], float]:
        """Prepare with as much made anew as the op takes: how, and the seconds of compiling the baseline."""
        for tried in dict.fromkeys((found, fixed_numbers(found, record))):
            try:
                prepared_s = self._prepare(record, storages, request, slots, tried)
                if tried != fixed_numbers(tried, record):
                    self.call.try_sets()  # Whole numbers may be refused in one set and not in another.
            except (torch.AcceleratorError, BaselineUnavailable):
                raise
            except Exception:  # noqa: BLE001, S112 - what it says of the recorded values counts
                continue
            return tried, prepared_s
        nothing = (FIXED,) * len(found)
        return nothing, self._prepare(record, storages, request, slots, nothing)

    def _prepare(
        self,
        record: CallRecord,
        storages: Sequence[torch.UntypedStorage],
        request: PrepareTiming,
        slots: int,
        found: tuple[Variation, ...],
    ) -> float:
        """Make the inputs and the call; seconds that compiling or capturing the baseline took."""
        function = baseline_function(request.baseline, self._eager, self._device)
        inputs = TimedInputs(record, self._device, slots, variations=found, storages=storages)
        start = time.perf_counter()
        if isinstance(function, Preparable):
            # A graph serves one set of inputs, compiled code serves all of them.
            served = slots if request.baseline == "cudagraphs" else 1
            inputs.make(served)
            for live in inputs.lives[:served]:
                function.prepare(live.args, live.kwargs)
        prepared_s = time.perf_counter() - start
        # Graphs within a graph cannot be captured: what cudagraphs runs on the device is eager's.
        on_device = self._eager if request.baseline == "cudagraphs" else function
        self.call = TimedCall(function, inputs, self._device, warm=request.warm, on_device=on_device)
        return prepared_s

    def _size_up(
        self, record: CallRecord, storages: Sequence[torch.UntypedStorage], request: PrepareTiming
    ) -> tuple[int, Work | None]:
        """How many sets of a call's inputs there is room for, and what the call has to do."""
        live = live_call(record, [storage.clone() for storage in storages], self._device)
        with torch.no_grad():
            observed = Observer().describe(self._eager(*live.args, **live.kwargs), live, ())
            if self._device.type != "cpu":
                torch.accelerator.synchronize(self._device)
            host_us = self._host_us(live)
        results = [output for output in observed.form().outputs if isinstance(output, OutputTensor)]
        size = sum(map(storage_size, record.storages)) + sum(map(tensor_bytes, results))
        if self._device.type == "cpu":
            most = MAX_TIMED_BYTES_CPU
        elif request.warm:
            most = kind_of(self._device.type).cache_bytes(self._device) // 2
        else:
            most = int(kind_of(self._device.type).total_bytes(self._device) * MAX_TIMED_SHARE)
        schema = registry.schema_of(record.op)
        # Ranks that are threads of one process and take turns say nothing of how long ranks take.
        calls = request.slots if schema.kind.on_ranks else _most_calls(size, host_us, self._device)
        slots = max(1, min(request.slots, calls, most // max(size, 1)))
        # What ranks have to send each other is no traffic of one device's memory.
        return slots, None if schema.kind.on_ranks else work_of(record, schema, results)

    def _host_us(self, live: LiveCall) -> float:
        """Microseconds that a call takes its caller."""
        taken_us = math.inf
        for _ in range(SIZING_CALLS):
            start = time.perf_counter()
            self._eager(*live.args, **live.kwargs)
            taken_us = min(taken_us, (time.perf_counter() - start) * 1e6)
            if taken_us > SHORT_CALL_US:
                break
        return taken_us

    def make_ready(self, request: MakeReady) -> BlockTimed:
        """Make sets of inputs and capture a graph."""
        self.call.inputs.make(request.calls)
        return BlockTimed(None) if request.captured is None else ready(self.call, request.captured)

    def block(self, request: TimeBlock) -> BlockTimed:
        """Run a block."""
        return timed_block(self.call, request)

    def compare(self, request: CompareTimed) -> Compared:
        """Judge a timed call by eager's answer to the values that it had."""
        key = request.slot, request.round
        if self._verified is None or self._verified[0] != key:
            self._verified = key, self._answer_to_timed(*key)
        held = self._verified[1]
        if held is None:
            return Compared({}, {})
        found = compared(held, (request.outcome,), request)
        return Compared({}, {}, unclear=(0,)) if found is None else Compared({0: found}, {})

    def _answer_to_timed(self, slot: int, round_number: int) -> CaseUnderJudgement | None:
        """Eager's answer to a timed call; None where a single result says nothing."""
        record = self.call.inputs.record_of(slot, round_number)
        before = self.call.inputs.before(slot, round_number)
        live = live_call(record, self.call.inputs.before(slot, round_number), self._device)
        schema = registry.schema_of(record.op)
        rule = rule_for(schema, JudgedCall(schema=schema, args=live.args, kwargs=live.kwargs))
        if rule.repeats(0) != 1:
            return None
        observer = Observer()
        state = random_state(self._device)
        with torch.no_grad():
            observer.keep([observer.describe(self._eager(*live.args, **live.kwargs), live, before)])
        if schema.kind is TaskKind.MODULE and not all(map(torch.equal, state, random_state(self._device))):
            return None
        [reference] = answers_of(observer)
        surround = rule.kind == "value" and schema.kind is TaskKind.OP and "strided" not in record.op
        return CaseUnderJudgement(
            record,
            schema,
            rule,
            lambda: [reference.outcome()],
            device=self._device,
            tolerance=None,
            summary=reference.summary,
            replicated=registry.replicated(record.op),
            scratch=registry.scratch_of(record),
            own_check=registry.own_check(record.op),
            run_again=lambda: repetitions(record, result_bytes(reference.form), 0, self._device, surround=surround),
        )


def _most_calls(size_bytes: int, host_us: float, device: torch.device) -> int:
    """More calls than this no block has, for a call that moves so many bytes and takes its caller so long."""
    if device.type == "cpu":
        return math.ceil(SPARE_CALLS_CPU * BLOCK_US_CPU / host_us)
    kernel_us = max(SHORTEST_KERNEL_US, size_bytes / FASTEST_BYTES_A_US)
    return math.ceil(max(BLOCK_US["K"] / kernel_us, SPARE_CALLS * BLOCK_US["E"] / max(host_us, kernel_us)))
