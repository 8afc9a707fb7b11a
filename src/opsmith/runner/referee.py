"""The referee: makes inputs, computes the reference, compares. Trusted, and restartable.

Eager itself can die on an input; that costs this process and one verdict, never the run.
"""

from __future__ import annotations

import math
import os
import traceback
import warnings
from functools import partial
from pathlib import Path

import msgspec
import torch

from opsmith import plugins
from opsmith.core.case import CallRecord, CaseRef, Outcome, OutputTensor, digest
from opsmith.core.op import OpSchema
from opsmith.evaluation.comparisons.table import rule_for
from opsmith.evaluation.correctness import CaseUnderJudgement
from opsmith.evaluation.inputs import CALL_DECODER, describe, rebuild
from opsmith.evaluation.observation import JudgedCall
from opsmith.evaluation.outcome import observe
from opsmith.evaluation.timing import TimedCall
from opsmith.runner.protocol import (
    BlockTimed,
    Channel,
    Compare,
    Compared,
    Enumerate,
    Enumerated,
    ListOps,
    OpsListed,
    Prepare,
    Prepared,
    RefereeError,
    RefereeReply,
    RefereeRequest,
    TimeBlock,
)
from opsmith.suites import Skipped, Suite
from opsmith.suites.aten_schemas import aten_schemas, overload

OUTCOME_DECODER = msgspec.msgpack.Decoder(Outcome)


def serve(channel: Channel, *, device: str, spool: str, number: int, threads: int) -> None:
    """Answer the judge's requests until it closes the channel.

    Args:
        device: torch device string of the run.
        spool: folder of the spool files.
        number: number of this referee's spool file.
        threads: CPU threads for references.
    """
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    torch.set_warn_always(False)
    referee = Referee(torch.device(device), Path(spool), number)
    while True:
        try:
            request = channel.receive(RefereeRequest)
        except EOFError:
            return
        channel.send(referee.answer(request))
        if referee.device_lost:
            return


class Referee:
    """Holds the suites, the spool file and the reference of the current case."""

    def __init__(self, device: torch.device, spool: Path, number: int) -> None:
        self.device_lost = False
        self._device = device
        self._number = number
        self._spool = (spool / f"{number}.spool").open("ab")
        self._suites: dict[str, Suite] = {}
        self._spooled: set[str] = set()
        self._held: CaseUnderJudgement | None = None
        self._timed: TimedCall | None = None

    def answer(self, request: RefereeRequest) -> RefereeReply:
        """Carry out one request; an error of opsmith's own becomes a :class:`RefereeError`."""
        try:
            if isinstance(request, Prepare):
                return self._prepare(request)
            if isinstance(request, Compare):
                return self._compare(request)
            if isinstance(request, Enumerate):
                return self._enumerate(request)
            if isinstance(request, TimeBlock):
                return self._time(request)
            return self._list_ops(request)
        except Exception as exc:  # noqa: BLE001 - eager and OpInfo raise anything
            self.device_lost = isinstance(exc, torch.AcceleratorError)
            return RefereeError(f"{type(exc).__name__}: {exc}", "".join(traceback.format_exception(exc)))

    def _suite(self, name: str) -> Suite:
        if name not in self._suites:
            self._suites[name] = plugins.load("opsmith.suites", name)()
        return self._suites[name]

    def _list_ops(self, request: ListOps) -> OpsListed:
        suite = self._suite(request.suite)
        device_type = torch.device(request.device).type
        entries = tuple((entry, dtype) for dtype in request.dtypes for entry in suite.entries(dtype, device_type))
        name, problem = self._look_at_device()
        return OpsListed(tuple(aten_schemas().values()), entries, name, problem)

    def _look_at_device(self) -> tuple[str, str | None]:
        try:
            torch.zeros(1, device=self._device)
        except Exception as exc:  # noqa: BLE001 - every device type fails in its own way
            return self._device.type, str(exc).strip().splitlines()[0]
        if self._device.type == "cuda":
            return torch.cuda.get_device_name(self._device), None
        return self._device.type, None

    def _enumerate(self, request: Enumerate) -> Enumerated:
        wanted_ops = None if request.ops is None else frozenset(request.ops)

        def wanted(op: str, signature: str) -> bool:
            return (wanted_ops is None or op in wanted_ops) and signature not in self._spooled

        cases: list[CaseRef] = []
        counts: dict[str, int] = {}
        skipped: dict[str, str] = {}
        ops: set[str] = set()
        suite = self._suite(request.suite)
        for call in suite.calls(request.entry, request.dtype, request.device, request.seed, wanted):
            if isinstance(call, Skipped):
                skipped.setdefault(call.reason, str(call.address))
                continue
            ops.add(call.op)
            counts[call.signature] = counts.get(call.signature, 0) + 1
            if call.record is not None and call.signature not in self._spooled:
                self._spooled.add(call.signature)
                offset, length, content_hash = self._append(call.record)
                cases.append(
                    CaseRef(
                        address=call.address,
                        op=call.op,
                        signature=call.signature,
                        content_hash=content_hash,
                        size_bytes=sum(map(len, call.record.storages)),
                        spool=self._number,
                        offset=offset,
                        length=length,
                        expects_error=call.expects_error,
                        tolerance=call.tolerance,
                    )
                )
        self._spool.flush()
        return Enumerated(tuple(cases), counts, tuple(sorted(ops)), {where: why for why, where in skipped.items()})

    def _append(self, record: CallRecord) -> tuple[int, int, str]:
        data = msgspec.msgpack.encode(record)
        offset = self._spool.seek(0, os.SEEK_END)
        self._spool.write(data)
        return offset, len(data), digest(data)

    def _prepare(self, request: Prepare) -> Prepared:
        self._held = None
        record = CALL_DECODER.decode(request.call)
        schema = aten_schemas()[request.case.op]
        live = rebuild(record, self._device)
        rule = rule_for(schema, JudgedCall(schema=schema, args=live.args, kwargs=live.kwargs))
        inputs = describe(record)
        try:
            outcomes = [self._reference(schema, record, request.rng_seed)]
            repeats = rule.repeats(_result_elements(outcomes[0]))
            outcomes += [self._reference(schema, record, request.rng_seed + i) for i in range(1, repeats)]
        except Exception as exc:  # noqa: BLE001 - eager refuses in any way it likes
            self.device_lost = isinstance(exc, torch.AcceleratorError)
            return Prepared(f"{type(exc).__name__}: {exc}"[:500], 1, rule.kind, inputs)
        self._held = CaseUnderJudgement(
            record,
            schema,
            rule,
            outcomes,
            device=self._device,
            tolerance=request.case.tolerance,
            run_again=partial(self._reference_on_garbage, schema, record, request.rng_seed, outcomes[0]),
        )
        return Prepared(None, repeats, rule.kind, inputs)

    def _reference(self, schema: OpSchema, record: CallRecord, seed: int) -> Outcome:
        live = rebuild(record, self._device)
        torch.manual_seed(seed)
        with torch.no_grad():
            result = overload(schema.name)(*live.args, **live.kwargs)
        if self._device.type != "cpu":
            torch.accelerator.synchronize()
        return observe(result, live, record)

    def _reference_on_garbage(self, schema: OpSchema, record: CallRecord, seed: int, first: Outcome) -> Outcome:
        """Eager once more, after memory of the results' sizes was filled with NaN and given back."""
        sizes = [len(output.data) for output in first.outputs if isinstance(output, OutputTensor) and output.data]
        for size in sizes:
            garbage = [torch.full((size,), 0xFF, dtype=torch.uint8, device=self._device) for _ in range(2)]
            del garbage
        return self._reference(schema, record, seed)

    def _compare(self, request: Compare) -> Compared:
        assert self._held is not None
        candidate = [OUTCOME_DECODER.decode(outcome) for outcome in request.outcomes]
        found = self._held.judge(candidate, tolerance=request.tolerance, layout=request.layout)
        return Compared(found.status, found.detail, found.figures, found.layout_differs)

    def _time(self, request: TimeBlock) -> BlockTimed:
        if request.call is not None:
            record = CALL_DECODER.decode(request.call)
            self._timed = TimedCall(overload(record.op), record, self._device)
        assert self._timed is not None
        return BlockTimed(self._timed.block(request.calls, request.quantity))


def _result_elements(outcome: Outcome) -> int:
    return max((math.prod(o.shape) for o in outcome.outputs if isinstance(o, OutputTensor)), default=1)
