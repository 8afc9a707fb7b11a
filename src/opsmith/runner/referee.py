"""The referee: makes inputs, computes the reference, compares. Trusted, and restartable.

Eager itself can die on an input; that costs this process and one verdict, never the run.
"""

from __future__ import annotations

import math
import os
import traceback
import warnings
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

import msgspec
import torch

from opsmith import plugins
from opsmith.core.case import CallRecord, CaseRef, Outcome, OutputTensor, digest
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.verdict import Status
from opsmith.evaluation.comparisons.table import Rule, rule_for
from opsmith.evaluation.correctness import CaseUnderJudgement
from opsmith.evaluation.inputs import CALL_DECODER, describe, item_bytes, rebuild_all
from opsmith.evaluation.observation import JudgedCall
from opsmith.evaluation.outcome import MAX_RESULT_BYTES, Observer
from opsmith.evaluation.reference import observe_eager, repeat_on_garbage, run_eager
from opsmith.evaluation.timing import TimedCall
from opsmith.runner.protocol import (
    OUT_OF_PROTOCOL,
    BlockTimed,
    CaseToPrepare,
    Channel,
    Compare,
    Compared,
    ComparedCase,
    Enumerate,
    Enumerated,
    ListOps,
    OpsListed,
    Prepare,
    Prepared,
    PreparedCase,
    RefereeError,
    RefereeReply,
    RefereeRequest,
    TimeBlock,
)
from opsmith.suites import Skipped, Suite
from opsmith.suites.aten_schemas import aten_schemas, overload

MAX_ERROR_CHARS = 500
OUTCOME_DECODER = msgspec.msgpack.Decoder(Outcome)


def serve(channel: Channel, *, device: str, spool: str, number: int, threads: int, suite: str | None) -> None:
    """Answer the judge's requests until it closes the channel.

    Args:
        device: torch device string of the run.
        spool: folder of the spool files.
        number: number of this referee's spool file.
        threads: CPU threads for references.
        suite: load this suite before the first request; its imports may take seconds.
    """
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    torch.set_warn_always(False)
    _seed_only(device)
    referee = Referee(device, Path(spool), number)
    if suite is not None:
        referee.load_suite(suite)
    while True:
        try:
            request = channel.receive(RefereeRequest)
        except EOFError:
            return
        channel.send(referee.answer(request))
        if referee.device_lost:
            return


_BAD_FORK = "_is_in_bad_fork"


def _seed_only(device: str) -> None:
    """Keep ``torch.manual_seed``, which OpInfo's generators call by the thousand, off other devices.

    For each device that may come later it formats a traceback, a millisecond a time; it leaves
    out those that a forked process cannot use.
    """
    for name in ("cuda", "xpu", "mtia"):
        if not device.startswith(name):
            setattr(getattr(torch, name), _BAD_FORK, lambda: True)


class Referee:
    """Holds the suites, the spool file and the references of the cases in hand."""

    def __init__(self, device: str, spool: Path, number: int) -> None:
        self.device_lost = False
        self._device_name = device
        self._number = number
        self._spool = (spool / f"{number}.spool").open("ab")
        self._suites: dict[str, Suite] = {}
        self._spooled: set[str] = set()
        self._held: dict[int, CaseUnderJudgement] = {}
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

    @cached_property
    def _device(self) -> torch.device:
        return torch.device(self._device_name)

    def load_suite(self, name: str) -> Suite:
        """The suite of that name, ready to list its entries."""
        if name not in self._suites:
            self._suites[name] = plugins.load("opsmith.suites", name)()
            self._suites[name].entries("f32", "cpu")  # Imports what it needs.
        return self._suites[name]

    def _list_ops(self, request: ListOps) -> OpsListed:
        problem = self._device_problem()
        if problem is not None:
            return OpsListed((), (), request.device, problem)
        suite = self.load_suite(request.suite)
        entries = tuple((entry, dtype) for dtype in request.dtypes for entry in suite.entries(dtype, self._device.type))
        is_cuda = self._device.type == "cuda"
        name = torch.cuda.get_device_name(self._device) if is_cuda else self._device.type
        return OpsListed(tuple(aten_schemas().values()), entries, name, None)

    def _device_problem(self) -> str | None:
        try:
            torch.zeros(1, device=self._device).item()  # The meta device holds no values.
        except Exception as exc:  # noqa: BLE001 - every device type fails in its own way
            return str(exc).strip().splitlines()[0][:300]
        return None

    def _enumerate(self, request: Enumerate) -> Enumerated:
        wanted_ops = None if request.ops is None else frozenset(request.ops)

        def wanted(op: str, signature: str) -> bool:
            return (wanted_ops is None or op in wanted_ops) and signature not in self._spooled

        cases: list[CaseRef] = []
        counts: dict[str, int] = {}
        skipped: dict[str, str] = {}
        ops: set[str] = set()
        suite = self.load_suite(request.suite)
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
        self._held.clear()
        items = request.cases
        records = [CALL_DECODER.decode(item.call) for item in items]
        lives = rebuild_all(records, self._device)
        observer = Observer()
        prepared: list[PreparedCase] = []
        rules: dict[int, Rule] = {}
        for number, (item, record, live) in enumerate(zip(items, records, lives, strict=True)):
            schema = aten_schemas()[item.case.op]
            rule = rule_for(schema, JudgedCall(schema=schema, args=live.args, kwargs=live.kwargs))
            error = None
            try:
                observer.keep([observer.describe(run_eager(record, live, item.rng_seed, self._device), live, record)])
                rules[number] = rule
            except torch.AcceleratorError:
                raise  # The device context is lost, and with it every other case of the request.
            except Exception as exc:  # noqa: BLE001 - eager refuses in any way it likes
                error = f"{type(exc).__name__}: {exc}"[:MAX_ERROR_CHARS]
            prepared.append(PreparedCase(error, 1, rule.kind, describe(record)))
        for (number, rule), first in zip(rules.items(), observer.outcomes(), strict=True):
            repeats = self._hold(number, items[number], records[number], rule, first)
            prepared[number] = msgspec.structs.replace(prepared[number], repeats=repeats)
        return Prepared(tuple(prepared))

    def _hold(self, number: int, item: CaseToPrepare, record: CallRecord, rule: Rule, first: Outcome) -> int:
        """Keep a case's reference, repeated as often as its comparison needs; returns how often."""
        repeats = rule.repeats(_result_elements(first))
        more = rebuild_all([record] * (repeats - 1), self._device)
        # An explicit storage offset (as_strided) would mean another place among garbage.
        surround = rule.kind == "value" and "strided" not in record.op
        self._held[number] = CaseUnderJudgement(
            record,
            aten_schemas()[record.op],
            rule,
            [first, *observe_eager(record, more, item.rng_seed + 1, self._device)],
            device=self._device,
            tolerance=item.case.tolerance,
            run_again=partial(repeat_on_garbage, record, first, item.rng_seed, self._device, surround=surround),
        )
        return repeats

    def _compare(self, request: Compare) -> Compared:
        return Compared(
            {
                number: self._compare_one(self._held[number], outcomes, request)
                for number, outcomes in request.outcomes.items()
            }
        )

    def _compare_one(self, held: CaseUnderJudgement, outcomes: Sequence[msgspec.Raw], request: Compare) -> ComparedCase:
        try:
            candidate = [OUTCOME_DECODER.decode(outcome) for outcome in outcomes]
            well_formed = all(map(_is_well_formed, candidate))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            well_formed = False
        if not well_formed or len(candidate) != held.repeats:
            return ComparedCase(Status.CRASHED, OUT_OF_PROTOCOL, None, layout_differs=False)
        found = held.judge(candidate, tolerance=request.tolerance, layout=request.layout)
        return ComparedCase(found.status, found.detail, found.figures, found.layout_differs)

    def _time(self, request: TimeBlock) -> BlockTimed:
        if request.call is not None:
            record = CALL_DECODER.decode(request.call)
            self._timed = TimedCall(overload(record.op), record, self._device)
        assert self._timed is not None
        return BlockTimed(self._timed.block(request.calls, request.quantity))


def _is_well_formed(outcome: Outcome) -> bool:
    """Whether a worker's tensors have the bytes that they claim; a kernel can write its own reply."""
    return all(not isinstance(output, OutputTensor) or _has_its_bytes(output) for output in outcome.outputs)


def _has_its_bytes(output: OutputTensor) -> bool:
    if output.layout != "strided" or output.device == "meta":
        return not output.data
    if len(output.strides) != len(output.shape) or min(output.shape, default=0) < 0:
        return False
    if output.dtype not in TORCH_NAMES:
        return True  # Of no dtype that a record has, so it will differ from eager's.
    size_bytes = math.prod(output.shape) * item_bytes(output.dtype)
    return len(output.data) == (size_bytes if size_bytes <= MAX_RESULT_BYTES else 0)


def _result_elements(outcome: Outcome) -> int:
    return max((math.prod(o.shape) for o in outcome.outputs if isinstance(o, OutputTensor)), default=1)
