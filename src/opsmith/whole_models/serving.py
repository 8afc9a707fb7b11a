"""Inside the processes of the judge of whole models: the referee, which holds eager, or one column."""

from __future__ import annotations

import itertools
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch.utils._pytree import tree_map_only

from opsmith import plugins
from opsmith.calls.live import make_storages, rebuild
from opsmith.calls.observer import Observer
from opsmith.calls.outcomes import HeldOutcome
from opsmith.core.case import CallRecord, Outcome, digest, storage_size
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.op import OpSchema, TaskKind, Variant
from opsmith.core.seeds import derive_seed
from opsmith.core.verdict import Status
from opsmith.evaluation.comparisons.correctness import CaseUnderJudgement
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.criteria.rules import rule_for
from opsmith.evaluation.timing.inputs import TimedInputs, without_gaps
from opsmith.evaluation.timing.modules import without_state
from opsmith.evaluation.timing.variation import FIXED, freshness, variations
from opsmith.runner.child.contexts import open_device
from opsmith.runner.child.versions import versions
from opsmith.suites import AsksWholeModels
from opsmith.suites.models.workload import ModelCall, Workload, other_state
from opsmith.tasks import registry
from opsmith.tasks.problem import record_call
from opsmith.tasks.problem_module import seed_everything
from opsmith.whole_models.clock import ModelClock
from opsmith.whole_models.columns import compiler_of, graphs_made, known_backends, known_modes
from opsmith.whole_models.messages import (
    Answer,
    BlockRun,
    CompareAnswer,
    Compared,
    Done,
    Failed,
    LoadColumn,
    MakeReady,
    ModelCase,
    ModelPrepared,
    Open,
    Opened,
    PrepareModel,
    Ready,
    RenewInputs,
    Reply,
    Request,
    RunBlock,
    Show,
    Shown,
)

#: Of all sets of a model's inputs together.
MAX_INPUT_BYTES = 1 << 30
#: Of a traceback the last lines that are kept, and of a message its length.
_TRACEBACK_LINES, _DETAIL_CHARACTERS = 12, 400


class _Held(NamedTuple):
    """A model in hand."""

    call: ModelCall
    record: CallRecord
    device: torch.device


class Server:
    """Answers one request after another; what a model, a compiler or a kernel raises becomes a :class:`Failed`."""

    def __init__(self) -> None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        self._held: _Held | None = None
        self._reference: CaseUnderJudgement | None = None
        self._outcome: Outcome | None = None
        self._clock: ModelClock | None = None
        self._compiles = False

    def answer(self, request: Request) -> Reply:
        """Carry out one request."""
        handlers: dict[type, Callable[[Any], Reply]] = {
            Open: self._open,
            PrepareModel: self._prepare,
            CompareAnswer: self._compare,
            LoadColumn: self._load,
            Answer: self._answer,
            Show: self._show,
            MakeReady: self._make_ready,
            RenewInputs: self._renew,
            RunBlock: self._run_block,
        }
        try:
            return handlers[type(request)](request)
        except torch.OutOfMemoryError as exc:
            return _failed(Status.OUT_OF_MEMORY, exc)
        except Exception as exc:  # noqa: BLE001 - the process's edge: compilers raise anything
            return _failed(Status.LOAD_FAILED if isinstance(request, LoadColumn) else Status.ERROR, exc)

    def _open(self, request: Open) -> Opened:
        suite = _suite(request.suite)
        return Opened(
            device=open_device(request.device),
            versions=versions(),
            backends=known_backends(),
            modes=known_modes(),
            models={model: suite.missing(model) for model in suite.models()},
        )

    def _prepare(self, request: PrepareModel) -> ModelPrepared:
        """Draw the case, write it down, and run eager on it."""
        case, device = request.case, _chosen(request.case.device)
        seed_everything(case.seed)
        workload = _suite(case.suite).workload(case.model, small=case.small)
        record = _record_of(case, workload, device)
        call = ModelCall(workload, case.mode, autocast=device.type if case.autocast else None)
        call.module.to(device)
        encoded = msgspec.msgpack.encode(record)
        Path(request.record).write_bytes(encoded)
        registry.use_model(case.task, call)
        schema = OpSchema(name=case.task, schema=case.model, variant=Variant.FUNCTIONAL, kind=TaskKind.MODULE)
        self._held = _Held(call, record, device)
        call.examined = True
        start = time.perf_counter()
        outcome = _outcome_of(self._held)
        first_call_s = time.perf_counter() - start
        call.examined = False
        live = rebuild(record, device)
        self._reference = CaseUnderJudgement(
            record,
            schema,
            rule_for(schema, JudgedCall(schema=schema, args=live.args, kwargs=live.kwargs)),
            lambda: [HeldOutcome.of(outcome)],
            device=device,
            tolerance=None,
            run_again=lambda: (HeldOutcome.of(_outcome_of(_Held(call, record, device))) for _ in itertools.count()),
        )
        void = None if call.void is None else str(call.void)
        return ModelPrepared(digest(encoded), _in_one_line(live.args[0]), first_call_s, void)

    def _compare(self, request: CompareAnswer) -> Compared:
        assert self._reference is not None
        answered = msgspec.msgpack.decode(Path(request.answer).read_bytes(), type=Outcome)
        found = self._reference.judge([HeldOutcome.of(answered)], tolerance=request.tolerance, layout=request.layout)
        return Compared(found.status, found.detail, found.figures)

    def _load(self, request: LoadColumn) -> Done:
        case, device = request.case, _chosen(request.case.device)
        compiler = compiler_of(request.column, device, Path(request.caches))
        seed_everything(case.seed)  # A tensor that a model draws and does not declare is no part of its state.
        workload = _suite(case.suite).workload(case.model, small=case.small)
        workload.module.to(device)
        autocast = device.type if case.autocast else None
        call = ModelCall(workload, case.mode, autocast=autocast, compiler=compiler)
        record = msgspec.msgpack.decode(Path(request.record).read_bytes(), type=CallRecord)
        self._held = _Held(call, record, device)
        self._compiles = compiler is not None
        return Done()

    def _answer(self, _request: Answer) -> Done:
        assert self._held is not None
        self._outcome = _outcome_of(self._held)
        return Done()

    def _show(self, request: Show) -> Shown:
        assert self._outcome is not None
        encoded = msgspec.msgpack.encode(self._outcome)
        Path(request.answer).write_bytes(encoded)
        self._outcome = None
        return Shown(digest(encoded), graphs_made() if self._compiles else None)

    def _make_ready(self, request: MakeReady) -> Ready:
        """Make sets of inputs, and let the module take the case's weights once more: float64 may have been there."""
        assert self._held is not None
        call, record, device = self._held
        live = rebuild(record, device)
        with torch.no_grad():
            call.take(live.kwargs["state"])
        del live
        record = without_gaps(without_state(record))
        storages = make_storages([record], device)[0]
        found = variations(record, storages, {}) if request.variations is None else request.variations
        sets = max(1, min(request.sets, MAX_INPUT_BYTES // max(sum(map(storage_size, record.storages)), 1)))
        inputs = TimedInputs(record, device, sets, variations=found, storages=storages)
        if request.variations is None:
            try:
                call.timed(inputs.lives[-1].args)
            except torch.AcceleratorError:
                raise
            except Exception:  # noqa: BLE001 - it refuses these values; what it says of the recorded ones counts
                found = (FIXED,) * len(found)
                inputs = TimedInputs(record, device, sets, variations=found, storages=storages)
        self._clock = ModelClock(call.timed, inputs, device)
        return Ready(self._clock.peak_bytes(), found, freshness(found, storages))

    def _renew(self, request: RenewInputs) -> Done:
        assert self._clock is not None
        self._clock.renew(request.key, request.calls)
        return Done()

    def _run_block(self, request: RunBlock) -> BlockRun:
        assert self._clock is not None
        if request.quantity == "K":
            return BlockRun(self._clock.device_block_us(request.calls))
        self._clock.host_block(request.calls)
        return BlockRun()


def _suite(name: str) -> AsksWholeModels:
    suite: AsksWholeModels = plugins.load(plugins.SUITES, name)()
    return suite


def _chosen(name: str) -> torch.device:
    """The device, which becomes the process's own: streams and events are those of the current one."""
    device = torch.device(name)
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return device


def _record_of(case: ModelCase, workload: Workload, device: torch.device) -> CallRecord:
    """Batches and state of a case, on its device and in its dtype."""
    dtype = None if case.dtype == "f32" else getattr(torch, TORCH_NAMES[case.dtype])
    placed: dict[int, torch.Tensor] = {}

    def place(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in placed:  # Tied weights stay tied.
            floating = dtype is not None and tensor.is_floating_point()
            placed[id(tensor)] = tensor.detach().to(device, dtype if floating else tensor.dtype)
        return placed[id(tensor)]

    call = ModelCall(workload, case.mode)
    batches = workload.batches()
    state = other_state(call.module, torch.Generator().manual_seed(derive_seed(case.seed, "state")))
    args, kwargs = tree_map_only(torch.Tensor, place, (batches, {"state": state}))
    return record_call(case.task, args, kwargs)


def _outcome_of(held: _Held) -> Outcome:
    """Run a case once on fresh copies of its inputs and its state."""
    live = rebuild(held.record, held.device)
    observer = Observer()
    with torch.no_grad():
        result = held.call(*live.args, **live.kwargs)
    observer.keep([observer.describe(result, live, held.record.storages)])
    return observer.outcomes()[0]


def _in_one_line(batch: dict[str, Any]) -> str:
    parts = (
        f"{name}={str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        for name, value in batch.items()
        if isinstance(value, torch.Tensor)
    )
    return ", ".join(parts)


def _failed(status: Status, error: BaseException) -> Failed:
    line = " ".join(str(error).split())
    ending = "".join(traceback.format_exception(error)).splitlines()[-_TRACEBACK_LINES:]
    return Failed(status, f"{type(error).__name__}: {line}"[:_DETAIL_CHARACTERS], tuple(ending))
