"""The referee: makes inputs, computes the reference, compares. Trusted, and restartable.

Eager itself can die on an input; that costs this process and one verdict, never the run.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from opsmith import plugins
from opsmith.aten.schemas import aten_schemas, overload
from opsmith.calls.live import CALL_DECODER, content_of, rebuild_all
from opsmith.calls.observer import Observer, before_call
from opsmith.calls.outcomes import HeldOutcome
from opsmith.calls.seeding import seed_generators, seed_of
from opsmith.calls.text import describe_with_values
from opsmith.calls.transfer import size_of
from opsmith.core.audit import AuditFinding
from opsmith.core.call_text import describe
from opsmith.core.case import (
    CallRecord,
    CaseAddress,
    CaseRef,
    Outcome,
    OutputTensor,
    SummarisedOutcome,
    digest,
    storage_size,
)
from opsmith.core.op import Variant
from opsmith.core.problems import problem_files
from opsmith.core.run import Selection
from opsmith.core.seeds import derive_seed
from opsmith.core.trace import TracedCall
from opsmith.core.verdict import Status
from opsmith.devices import kind_of
from opsmith.evaluation.comparisons.correctness import CaseUnderJudgement
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.criteria.rules import ComparisonRule, rule_for
from opsmith.evaluation.criteria.tolerance import is_within
from opsmith.evaluation.eager.answers import Answer, answers_of
from opsmith.evaluation.eager.reference import misreads, observe_eager, reference_calls, repetitions, run_eager
from opsmith.evaluation.integrity.policy import computes
from opsmith.evaluation.roofline.ceilings import cached_ceilings
from opsmith.evaluation.timing.blocks import TimedCall
from opsmith.evaluation.timing.cuda_graphs import give_memory_back, graph_costs
from opsmith.evaluation.timing.single_calls import launch_ms, runtime_ms
from opsmith.runner.child.build_cache import EAGER, use_build_cache
from opsmith.runner.child.contexts import open_device
from opsmith.runner.child.timed_blocks import MAX_KEPT_WHILE_ALONE_BYTES, forget, renewed, warmed_up
from opsmith.runner.protocol.bare_messages import PlainCall, described
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.channel import Channel
from opsmith.runner.protocol.out_of_memory import shortened
from opsmith.runner.protocol.referee_messages import (
    CaseToPrepare,
    ClockSetUp,
    Compare,
    Compared,
    CompareTimed,
    DeviceOpened,
    DrawSecret,
    Enumerate,
    Enumerated,
    ErrorsMapped,
    Feedback,
    ListOps,
    MakeVariants,
    MapErrors,
    Measure,
    Measured,
    OpenDevice,
    OpsListed,
    Prepare,
    Prepared,
    PreparedCase,
    Proposal,
    RefereeError,
    RefereeReply,
    RefereeRequest,
    SecretDrawn,
    SetUpClock,
    Shrink,
    VariantsMade,
)
from opsmith.runner.protocol.timing_messages import (
    BlockTimed,
    GiveMemoryBack,
    MakeReady,
    MemoryGivenBack,
    PrepareTiming,
    RenewInputs,
    TimeBlock,
    TimingPrepared,
    WarmUp,
    spin_s,
)
from opsmith.runner.referee.candidate_outcomes import UNREADABLE, compared, mapped, read_told, result_bytes
from opsmith.runner.referee.timed_reference import TimedReference
from opsmith.suites import AsksOwnTasks, FindsVoid, Search, Selective, Shrinkable, Skipped, Suite, SuiteCall, Void
from opsmith.suites.traced_size import argument_bytes
from opsmith.suites.valid_inputs import traced_record
from opsmith.suites.variants import probes
from opsmith.suites.variants.layouts import LAYOUTS
from opsmith.tasks import registry

MAX_ERROR_CHARS = 500
#: Device memory that a referee keeps for its next case.
MAX_KEPT_BYTES = 1 << 30
_BAD_FORK = "_is_in_bad_fork"


def serve(
    channel: Channel,
    *,
    device: str,
    spool: str,
    builds: str,
    number: int,
    threads: int,
    selection: dict[str, Any],
    ops: Sequence[str],
) -> None:
    """Answer the judge's requests until it closes the channel.

    Args:
        device: torch device string of the run.
        spool: folder of the spool files.
        builds: parent of the build caches.
        number: number of this referee's spool file.
        threads: CPU threads for references.
        selection: the :class:`~opsmith.core.run.Selection` of suites that read a dataset.
        ops: patterns of the ops of the run.
    """
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    torch.set_warn_always(False)
    _seed_only(device)
    use_build_cache(Path(builds) / EAGER)
    referee = Referee(device, Path(spool), number, msgspec.convert(selection, Selection), ops)
    while True:
        try:
            request = channel.receive(RefereeRequest)
        except EOFError:
            return
        channel.send(referee.answer(request))
        channel.spin_s = spin_s(request)
        if referee.device_lost:
            return
        if isinstance(request, OpenDevice) and request.suite is not None:
            referee.load_suite(request.suite)  # Its imports take seconds, in which others are waited for.


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

    def __init__(self, device: str, spool: Path, number: int, selection: Selection, ops: Sequence[str] = ()) -> None:
        self.device_lost = False
        self._selection = selection
        self._ops = ops
        self._device_name = device
        self._number = number
        self._folder = spool
        self._spool = (spool / f"{number}.spool").open("ab")
        self._suites: dict[str, Suite] = {}
        self._spooled: set[str] = set()
        self._held: dict[int, CaseUnderJudgement] = {}
        self._held_again: dict[int, CaseUnderJudgement] = {}
        self._timed: dict[int, TimedReference] = {}
        self._search: Search | None = None
        if selection.problems is not None:
            # At once: a referee that takes the place of another one is not asked to load the suite.
            files = problem_files(Path(selection.problems))
            small, parallel = selection.sizes == "small", bool(selection.ranks)
            registry.use_problems(files, device, small=small, parallel=parallel)

    def answer(self, request: RefereeRequest) -> RefereeReply:
        """Carry out one request; an error of opsmith's own becomes a :class:`RefereeError`."""
        try:
            return self._handlers[type(request)](request)
        except Exception as exc:  # noqa: BLE001 - eager and OpInfo raise anything
            self.device_lost = kind_of(self._device_name).is_lost(exc, str(exc))
            message, trace = f"{type(exc).__name__}: {exc}", "".join(traceback.format_exception(exc))
            return RefereeError(shortened(message), shortened(trace), ends=self.device_lost)

    @cached_property
    def _handlers(self) -> dict[type[RefereeRequest], Callable[[Any], RefereeReply]]:
        return {
            OpenDevice: self._open_device,
            ListOps: self._list_ops,
            Enumerate: self._enumerate,
            MakeVariants: self._make_variants,
            DrawSecret: self._draw_secret,
            Prepare: self._prepare,
            Compare: self._compare,
            MapErrors: self._map_errors,
            PrepareTiming: self._prepare_timing,
            MakeReady: self._make_ready,
            RenewInputs: self._renew,
            WarmUp: self._warm_up,
            TimeBlock: self._time,
            CompareTimed: self._compare_timed,
            SetUpClock: self._set_up_clock,
            Measure: self._measure,
            Shrink: self._shrink,
            Feedback: self._search_on,
            GiveMemoryBack: self._give_memory_back,
        }

    @cached_property
    def _device(self) -> torch.device:
        return torch.device(self._device_name)

    def load_suite(self, name: str) -> Suite:
        """The suite of that name, ready to list its entries."""
        if name not in self._suites:
            suite = self._suites[name] = plugins.load("opsmith.suites", name)()
            if isinstance(suite, Selective):
                suite.select(self._selection, self._ops)
            suite.entries("f32", "cpu")  # Imports and reads what it needs.
        return self._suites[name]

    def _open_device(self, _request: OpenDevice) -> DeviceOpened:
        return open_device(self._device_name)

    def _list_ops(self, request: ListOps) -> OpsListed:
        suite = self.load_suite(request.suite)
        entries = tuple((entry, dtype) for dtype in request.dtypes for entry in suite.entries(dtype, self._device.type))
        return OpsListed(
            suite.schemas() if isinstance(suite, AsksOwnTasks) else tuple(aten_schemas().values()), entries
        )

    def _enumerate(self, request: Enumerate) -> Enumerated:
        wanted_ops = None if request.ops is None else frozenset(request.ops)
        if request.afresh:
            self._spooled.clear()

        def wanted(op: str, signature: str) -> bool:
            return (wanted_ops is None or op in wanted_ops) and signature not in self._spooled

        cases: list[CaseRef] = []
        counts: dict[str, int] = {}
        skipped: dict[str, str] = {}
        ops: set[str] = set()
        void: dict[str, AuditFinding] = {}
        suite = self.load_suite(request.suite)
        if isinstance(suite, FindsVoid):
            suite.compare_by(partial(is_within, mode=request.tolerance))
        for call in suite.calls(request.entry, request.dtype, request.device, request.seed, wanted):
            if isinstance(call, Void):
                void[call.op] = call.finding
                continue
            if isinstance(call, Skipped):
                skipped.setdefault(call.reason, str(call.address))
                continue
            ops.add(call.op)
            counts[call.signature] = counts.get(call.signature, 0) + call.count
            asked = request.only in (None, str(call.address))
            if asked and call.record is not None and call.signature not in self._spooled:
                self._spooled.add(call.signature)
                if not call.tried and (refusal := self._refusal(call.record)) is not None:
                    skipped.setdefault(refusal, str(call.address))
                    continue
                cases.append(self._spooled_case(call.address, call.record, call.signature, call))
        if request.again:
            cases = list(self._with_other_values(suite, request, cases))
        self._spool.flush()
        return Enumerated(
            tuple(cases),
            counts,
            tuple(sorted(ops)),
            {where: why for why, where in skipped.items()},
            registry.loaded_schemas(sorted(ops)),
            void,
        )

    def _spooled_case(
        self, address: CaseAddress, record: CallRecord, signature: str, call: SuiteCall | None = None
    ) -> CaseRef:
        """A call on its way to the judge, its record in the spool file; ``call`` is what the suite says of it."""
        data = msgspec.msgpack.encode(record)
        offset, length = self._append(data)
        return CaseRef(
            address=address,
            op=record.op,
            signature=signature,
            content_hash=digest(data),
            size_bytes=sum(map(storage_size, record.storages)),
            spool=self._number,
            offset=offset,
            length=length,
            expects_error=call is not None and call.expects_error,
            tolerance=call.tolerance if call is not None else None,
            ranks=call.ranks if call is not None else None,
        )

    def _with_other_values(self, suite: Suite, request: Enumerate, cases: Sequence[CaseRef]) -> Iterator[CaseRef]:
        """The cases, each with the values that the same generator makes under another seed."""
        seed = derive_seed(request.seed, "again")
        redrawn = _redrawn(suite, request.entry, request.dtype, request.device, seed, cases)
        again = {address: self._append(msgspec.msgpack.encode(record)) for address, record in redrawn}
        for case in cases:
            other = again.get(str(case.address))
            yield case if other is None else msgspec.structs.replace(case, again=other)

    def _make_variants(self, request: MakeVariants) -> VariantsMade:
        first = request.cases[0]
        records, _ = self._read(request.cases)
        # More than are asked for: eager refuses some.
        schema = registry.schema_of(first.op)
        varied = probes(records, schema, request.seed, 2 * request.limit, large=request.large)
        cases: list[CaseRef] = []
        for number, (label, record) in enumerate(varied):
            if len(cases) == request.limit:
                break
            # What torch gets wrong itself was found where it writes into memory of a given layout.
            written = label in LAYOUTS and schema.variant in (Variant.INPLACE, Variant.OUT)
            if self._refusal(record) is None and not (written and misreads(record, self._device)):
                address = CaseAddress(first.address.suite, first.op, first.address.dtype, "variant", number, 0)
                case = self._spooled_case(address, record, f"{first.op}~{number}~{label}")
                cases.append(msgspec.structs.replace(case, variant=label, tolerance=first.tolerance))
        self._spool.flush()
        return VariantsMade(tuple(cases))

    def _draw_secret(self, request: DrawSecret) -> SecretDrawn:
        suite = self.load_suite(request.suite)
        of_entry: dict[tuple[str, str], list[CaseRef]] = {}
        for case in request.cases:
            of_entry.setdefault((case.address.entry, case.address.dtype), []).append(case)
        drawn: dict[str, CallRecord] = {}
        for (entry, dtype), cases in of_entry.items():
            drawn.update(_redrawn(suite, entry, dtype, request.device, request.seed, cases))
        records, _ = self._read(request.cases)
        secret: list[CaseRef] = []
        calls: list[PlainCall] = []
        for number, (case, known) in enumerate(zip(request.cases, records, strict=True)):
            record = drawn.get(str(case.address))
            if record is None or self._refusal(record) is not None:
                record = known
            spooled = self._spooled_case(case.address, record, case.signature)
            secret.append(msgspec.structs.replace(spooled, tolerance=case.tolerance))
            values = Path(request.folder, f"values-{number}")
            values.write_bytes(b"".join(content_of(storage, self._device) for storage in record.storages))
            calls.append(PlainCall(json.dumps(described(record)).encode(), str(values)))
        self._spool.flush()
        return SecretDrawn(tuple(secret), tuple(calls))

    def _refusal(self, record: CallRecord) -> str | None:
        """Why eager does not answer a call on this device, or None if it does."""
        try:
            run_eager(record, rebuild_all([record], self._device)[0], 0, self._device)
            self._wait()
        except torch.AcceleratorError:
            raise  # The device context is lost.
        except Exception as exc:  # noqa: BLE001 - eager refuses in any way it likes
            return f"{record.op}: {_refusal(exc)}"
        return None

    def _wait(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)

    def _append(self, call: bytes) -> tuple[int, int]:
        """Write a serialized call; its offset and length."""
        offset = self._spool.seek(0, os.SEEK_END)
        self._spool.write(call)
        return offset, len(call)

    def _prepare(self, request: Prepare) -> Prepared:
        self._held.clear()
        self._held_again.clear()
        give_memory_back(self._device, MAX_KEPT_BYTES)
        records, again = self._read([item.case for item in request.cases])
        references = self._references(request.cases, records)
        numbers = [n for n in again if references[n].error is None and references[n].rule.repeats(0) == 1]
        others = self._references([_next_execution(request.cases[n]) for n in numbers], [again[n] for n in numbers])
        for number, other in zip(numbers, others, strict=True):
            if other.answer is not None:
                self._held_again[number] = self._under_judgement(
                    _next_execution(request.cases[number]), again[number], other, 1
                )
        return Prepared(tuple([self._hold(n, item, records[n], references[n]) for n, item in enumerate(request.cases)]))

    def _give_memory_back(self, _request: GiveMemoryBack) -> MemoryGivenBack:
        self._held.clear()
        self._held_again.clear()
        give_memory_back(self._device, 0)
        return MemoryGivenBack()

    def _read(self, cases: Sequence[CaseRef]) -> tuple[list[CallRecord], dict[int, CallRecord]]:
        """The calls of cases, and by their places the same calls with other values, of those that have them."""
        # Opened each time: a file that was sent from elsewhere may be removed when its cases are judged.
        with contextlib.closing(Spool(self._folder)) as spool:
            records = [CALL_DECODER.decode(spool.read(case)) for case in cases]
            others = {place: spool.read_again(case) for place, case in enumerate(cases)}
        return records, {place: CALL_DECODER.decode(call) for place, call in others.items() if call is not None}

    def _references(self, items: Sequence[CaseToPrepare], records: Sequence[CallRecord]) -> list[_Reference]:
        """Eager's answers to some calls, with one wait for the device."""
        observer = Observer()
        found: list[_Reference] = []
        for item, record, live in zip(items, records, rebuild_all(records, self._device), strict=True):
            schema = registry.schema_of(item.case.op)
            reference = _Reference(rule_for(schema, JudgedCall(schema=schema, args=live.args, kwargs=live.kwargs)))
            found.append(reference)
            try:
                before = before_call(live.storages, record.storages)
                result = run_eager(record, live, item.rng_seed, self._device)
                observer.keep([observer.describe(result, live, before)])
                reference.calls = tuple(op for op in reference_calls(record) if computes(op))
            except torch.AcceleratorError:
                raise  # The device context is lost, and with it every other case of the request.
            except Exception as exc:  # noqa: BLE001 - eager refuses in any way it likes
                reference.error = shortened(f"{type(exc).__name__}: {exc}")[:MAX_ERROR_CHARS]
        answered = [reference for reference in found if reference.error is None]
        for reference, told in zip(answered, answers_of(observer), strict=True):
            reference.answer = told
        return found

    def _hold(self, number: int, item: CaseToPrepare, record: CallRecord, reference: _Reference) -> PreparedCase:
        """Keep a case's reference, repeated as often as its comparison needs."""
        kind, inputs = reference.rule.kind, describe(record)
        if reference.answer is None:
            return PreparedCase(reference.error, 1, kind, inputs)
        form = reference.answer.form
        repeats = reference.rule.repeats(_result_elements(form))
        self._held[number] = self._under_judgement(item, record, reference, repeats)
        return PreparedCase(
            error=None,
            repeats=repeats,
            comparison=kind,
            inputs=inputs,
            reference_calls=reference.calls,
            result_bytes=result_bytes(form),
            again=number in self._held_again,
            writes=reference.answer.writes,
        )

    def _under_judgement(
        self, item: CaseToPrepare, record: CallRecord, reference: _Reference, repeats: int
    ) -> CaseUnderJudgement:
        answer = reference.answer
        assert answer is not None
        more = rebuild_all([record] * (repeats - 1), self._device)
        seeds = [seed_of(item.rng_seed, number, repeats) for number in range(1, repeats)]
        others = observe_eager(record, more, seeds, self._device)
        # An explicit storage offset (as_strided) would mean another place among garbage.
        surround = reference.rule.kind == "value" and "strided" not in record.op
        return CaseUnderJudgement(
            record,
            registry.schema_of(record.op),
            reference.rule,
            lambda: [answer.outcome(), *others],
            device=self._device,
            tolerance=item.case.tolerance,
            repeats=repeats,
            summary=answer.summary,
            seed=item.rng_seed,
            small_results=item.case.variant == "tiny",
            replicated=registry.replicated(record.op),
            scratch=registry.scratch_of(record),
            own_check=registry.own_check(record.op),
            run_again=lambda: repetitions(
                record, result_bytes(answer.form), item.rng_seed, self._device, surround=surround
            ),
        )

    def _compare(self, request: Compare) -> Compared:
        cases = {n: compared(self._held[n], outcomes, request) for n, outcomes in request.outcomes.items()}
        again = {n: compared(self._held_again[n], (raw,), request) for n, raw in request.again.items()}
        unclear = {number for found in (cases, again) for number, case in found.items() if case is None}
        found_first, found_again = (
            {number: case for number, case in found.items() if case is not None and number not in unclear}
            for found in (cases, again)
        )
        replayed = [
            number
            for number, case in found_again.items()
            if case.status is not Status.PASSED
            and found_first[number].status is Status.PASSED
            and self._is_replay(number, request)
        ]
        return Compared(found_first, found_again, tuple(replayed), tuple(sorted(unclear)))

    def _map_errors(self, request: MapErrors) -> ErrorsMapped:
        [[raw]] = request.compared.outcomes.values()
        return ErrorsMapped(mapped(self._held[0], raw, request.compared))

    def _is_replay(self, number: int, request: Compare) -> bool:
        """Whether the second outcome has the first one's values, which are the answer to other arguments."""
        try:
            one, other = (
                read_told(raw, request, self._device) for raw in (request.outcomes[number][0], request.again[number])
            )
        except UNREADABLE:
            return False  # Said already, by the comparison.
        assert isinstance(other, HeldOutcome)  # A summary says no more than that it may be right.
        if isinstance(one, SummarisedOutcome):
            return self._held[number].has_replayed(other)  # It passed, so it stands for eager's.
        return one.has_results_of(other) and any(map(size_of, one.elements))

    def _prepare_timing(self, request: PrepareTiming) -> TimingPrepared:
        if request.pair == 0:
            self._held.clear()
            forget(self._timed, self._device)
        timed = self._timed[request.pair] = TimedReference(request, self._device)
        return timed.prepared

    def _make_ready(self, request: MakeReady) -> BlockTimed:
        return self._timed[request.pair].make_ready(request)

    def _renew(self, request: RenewInputs) -> BlockTimed:
        return renewed(self._timed_calls(), request)

    def _warm_up(self, request: WarmUp) -> BlockTimed:
        return warmed_up(self._timed_calls(), request)

    def _timed_calls(self) -> dict[int, TimedCall]:
        return {number: timed.call for number, timed in self._timed.items()}

    def _time(self, request: TimeBlock) -> BlockTimed:
        return self._timed[request.pair].block(request)

    def _compare_timed(self, request: CompareTimed) -> Compared:
        return self._timed[request.pair].compare(request)

    def _shrink(self, request: Shrink) -> Proposal:
        suite = self.load_suite(request.suite)
        assert isinstance(suite, Shrinkable)
        self._search = suite.search(
            request.entry,
            request.dtype,
            request.device,
            request.seed,
            failing=request.failing,
            limit_s=request.limit_s,
        )
        return self._propose(self._search, request.dtype)

    def _search_on(self, request: Feedback) -> Proposal:
        assert self._search is not None
        if request.failed is None:
            self._search.stop()
            return Proposal(None)
        self._search.answer(failed=request.failed)
        return self._propose(self._search, "")

    def _propose(self, search: Search, dtype: str) -> Proposal:
        """The next proposal that eager answers, its call in the spool file."""
        while (record := search.propose()) is not None:
            if self._refusal(record) is None:
                address = CaseAddress("", record.op, dtype, "smaller", 0, 0)
                case = self._spooled_case(address, record, "")
                self._spool.flush()
                return Proposal(case, describe_with_values(record))
            search.answer(failed=False)
        return Proposal(None)

    @cached_property
    def _launch_ms(self) -> float:
        return launch_ms(self._device)

    def _set_up_clock(self, request: SetUpClock) -> ClockSetUp:
        ceilings = cached_ceilings(self._device, Path(request.folder))
        return ClockSetUp(ceilings, graph_costs(self._device) if kind_of(self._device.type).times_kernels else None)

    def _measure(self, request: Measure) -> Measured:
        took = problem = None
        try:
            record = traced_record(request.call, seed=request.seed)
            live = rebuild_all([record], self._device)[0]
            seed_generators(request.seed, self._device)
            function = overload(record.op)
            with torch.no_grad():
                took = runtime_ms(lambda: function(*live.args, **live.kwargs), self._device)
        except torch.AcceleratorError:
            raise  # The device context is lost.
        except torch.OutOfMemoryError:
            problem = f"needs more memory than the device has ({_gib(request.call):.1f} GiB of arguments)"
        except Exception as exc:  # noqa: BLE001 - eager refuses in any way it likes
            problem = _refusal(exc)
        give_memory_back(self._device, MAX_KEPT_WHILE_ALONE_BYTES)
        return Measured(took, self._launch_ms, problem)


def _redrawn(
    suite: Suite, entry: str, dtype: str, device: str, seed: int, cases: Sequence[CaseRef]
) -> Iterator[tuple[str, CallRecord]]:
    """The calls of an entry's cases, by their addresses, with the values that the same generator makes under a seed.

    Calls that must raise are none of them, nor are those of which other sizes come out.
    """
    if isinstance(suite, FindsVoid):
        suite.compare_by(None)
    wanted = {case.signature for case in cases if not case.expects_error}
    sizes = {str(case.address): (case.signature, case.size_bytes) for case in cases}
    calls = suite.calls(entry, dtype, device, seed, lambda _, signature: signature in wanted) if wanted else ()
    for call in calls:
        if not isinstance(call, SuiteCall) or call.record is None or call.expects_error:
            continue
        size = sum(map(storage_size, call.record.storages))
        if sizes.get(str(call.address)) == (call.signature, size):
            wanted.discard(call.signature)
            yield str(call.address), call.record
            if not wanted:
                return


@dataclass
class _Reference:
    """Eager's answer to one call, or why there is none."""

    rule: ComparisonRule
    answer: Answer | None = None
    error: str | None = None
    calls: tuple[str, ...] = ()


def _next_execution(item: CaseToPrepare) -> CaseToPrepare:
    """The case with the random state under which the worker runs it a second time."""
    return msgspec.structs.replace(item, rng_seed=item.rng_seed + 1)


def _refusal(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:MAX_ERROR_CHARS]


def _gib(call: TracedCall) -> float:
    return argument_bytes(call) / 2**30


def _result_elements(outcome: Outcome) -> int:
    return max((math.prod(o.shape) for o in outcome.outputs if isinstance(o, OutputTensor)), default=1)
