"""Running one call in a worker: on fresh copies, then on other values at the same addresses."""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.utils._pytree import tree_leaves

from opsmith.aten.arguments import undeclared
from opsmith.calls.live import LiveCall, live_call
from opsmith.calls.observer import Observer, before_call
from opsmith.calls.seeding import seed_generators, seed_of
from opsmith.calls.synthetic import flat_view, generate
from opsmith.calls.transfer import copy_to_device
from opsmith.core.case import CallRecord, MappingValue, SequenceValue, Storage, TensorValue, storage_size
from opsmith.core.conduct import CallConduct
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema, TaskKind
from opsmith.devices import kind_of
from opsmith.dispatch.as_installed import as_installed
from opsmith.evaluation.integrity.garbage import leave_garbage
from opsmith.evaluation.integrity.supervision import Supervision
from opsmith.evaluation.integrity.traced_lines import TracedLines
from opsmith.evaluation.integrity.watch import plain_results
from opsmith.runner.child.outcome_files import read_call
from opsmith.runner.protocol.out_of_memory import shortened
from opsmith.runner.protocol.worker_messages import CallToRun, Raised, Returned
from opsmith.runner.worker.late_writes import KeptMemory
from opsmith.runner.worker.rendezvous import spoil_workspace
from opsmith.tasks.module_call import ModuleCall

#: Messages from a candidate are cut to this, so that they stay one line that can be read.
MAX_MESSAGE_CHARS = 2_000
MAX_TRACEBACK_CHARS = 8_000


class Answering:
    """A loaded kernel, called under supervision.

    Args:
        function: what answers.
        kernel: its record.
        schema: of the task that it answers.
        device: where it runs.
        root: folder of its files, or None.
        supervision: watches it; None for a kernel that is trusted.

    Attributes:
        files: its Python files, relative to ``root``.
        on_ranks: other processes answer the same calls with it.
        spoils_workspace: ranks' symmetric memory holds garbage before each call.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        kernel: Kernel,
        schema: OpSchema,
        device: torch.device,
        root: Path | None,
        supervision: Supervision | None,
    ) -> None:
        self.function = function
        self.on_ranks = schema.kind.on_ranks
        self.spoils_workspace = schema.kind is TaskKind.PARALLEL and supervision is not None
        self._kernel, self._schema, self._device = kernel, schema, device
        self.supervision = supervision
        self.root = root
        self.files = tuple(path for path in kernel.files if path.endswith(".py"))

    @cached_property
    def timed(self) -> Callable[..., Any]:
        """What is called when the clock runs."""
        return as_installed(self.function, self._kernel, self._schema, self._device.type)

    def call(self, live: LiveCall) -> tuple[Any, CallConduct | None]:
        """Answer a call; the result and what was seen of how it came about.

        Raises:
            NotImplementedError: the kernel declares other dtypes.
            BaseException: whatever the kernel raises.
        """
        why_not = undeclared(self._kernel.dtypes, live.args, live.kwargs)
        if why_not is not None:
            raise NotImplementedError(why_not)
        if self.supervision is None:
            return self.function(*live.args, **live.kwargs), None
        if not isinstance(self.function, ModuleCall):
            with self.supervision.watching((live.args, live.kwargs)):
                result = self.function(*live.args, **live.kwargs)
            return result, self.supervision.conduct(result)
        state = live.kwargs.get("state")
        if state is not None:
            with self.supervision.paused():
                self.function.take(state)
        with self.supervision.watching(live.args):
            result = self.function.forward(*live.args)
        conduct = self.supervision.conduct(result)
        if state is not None:
            with self.supervision.paused():
                self.function.give_back(state)
        return result, conduct

    def call_traced(self, live: LiveCall) -> tuple[Any, CallConduct | None, Mapping[str, frozenset[int]]]:
        """:meth:`call`, and which lines of the kernel's files ran."""
        if self.root is None:
            return *self.call(live), {}
        with TracedLines(self.root, self.files) as traced:
            result, conduct = self.call(live)
        if traced.disturbed and self.supervision is not None:
            self.supervision.note("took away the trace function that notes which of its lines run")
        return result, conduct, traced.executed


class CallRun:
    """All executions of one call.

    Attributes:
        last_seed: what the generators were seeded with before the last execution.

    Args:
        answering: the kernel.
        device: where it runs.
        record: the decoded call of ``item``.
        item: what the judge asks.
    """

    def __init__(self, answering: Answering, device: torch.device, record: CallRecord, item: CallToRun) -> None:
        self.last_seed = item.rng_seed
        self._answering = answering
        self._device = device
        self._record = record
        self._item = item
        self._raised: Raised | None = None
        self._begun = 0
        self._executions = 0
        self._conduct: list[CallConduct] = []
        self._executed: dict[str, tuple[int, ...]] = {}
        #: Of the execution before: its result, which is still alive when the next one runs.
        self._last: Any = None
        self._results: list[KeptMemory] = []
        self._arguments: KeptMemory | None = None

    def run(self, lives: Sequence[LiveCall], observer: Observer) -> None:
        """Run the call on each of its copies, and again; what raises is observed as that alone.

        Raises:
            torch.AcceleratorError: the device context is lost, and with it every other call.
        """
        results = []
        try:
            results += [self._execute(live, self._record, observer) for live in lives]
            if self._item.again is not None:
                results.append(self._execute_again(lives[-1], read_call(self._item.again), observer))
        except torch.AcceleratorError:
            raise
        except BaseException as exc:
            told = raised(exc, self._device.type)
            if told.kind == "device":
                raise
            self._raised = told
            if self._answering.supervision is not None:
                self._conduct.append(self._answering.supervision.conduct(None))
            return
        observer.keep(results)
        self._executions = len(results)

    def _execute(self, live: LiveCall, record: CallRecord, observer: Observer, *, traced: bool = False) -> Any:
        self.last_seed = seed_of(self._item.rng_seed, self._begun, self._item.repeats)
        self._begun += 1
        seed_generators(self.last_seed, self._device)
        before = before_call(live.storages, record.storages)
        if self._device.type != "cpu":
            leave_garbage(self._item.result_bytes, self._device)
        if self._answering.spoils_workspace and self._device.type == "cuda":
            with self._paused():
                spoil_workspace()
        with torch.no_grad():
            if traced:
                result, conduct, executed = self._answering.call_traced(live)
                self._executed = {path: tuple(sorted(lines)) for path, lines in executed.items() if lines}
            else:
                result, conduct = self._answering.call(live)
        if conduct is not None:
            self._conduct.append(conduct)
            self._compare_memory(result, live)
            if self._answering.on_ranks:
                self._keep(result, live)
        if any(not isinstance(storage, bytes) for storage in before):
            with self._paused():  # To see what changed, values are generated again, and compared on the device.
                return observer.describe(result, live, before)
        return observer.describe(result, live, before)

    def _compare_memory(self, result: Any, live: LiveCall) -> None:
        """Note a result that lies in the memory of the one before: that one is no longer what it was."""
        inputs = {storage.data_ptr() for storage in live.storages}
        memory = {start for start in _starts(result) if start not in inputs}
        supervision = self._answering.supervision
        if supervision is not None and memory & _starts(self._last):
            supervision.note("returned the memory of its earlier result, which somebody still holds")
        self._last = result

    def _keep(self, result: Any, live: LiveCall) -> None:
        """Remember what results and arguments hold now that the call has returned on this rank."""
        with self._paused():
            own = {storage.data_ptr() for storage in live.storages}
            leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            new = [leaf for leaf in leaves if leaf.untyped_storage().data_ptr() not in own]
            self._results.append(KeptMemory(new))
            self._arguments = KeptMemory(flat_view(storage, torch.uint8) for storage in live.storages)

    def late_writes(self) -> Iterator[str]:
        """What of the memory of its calls has changed since they returned, in words."""
        with self._paused():
            if any(kept.has_changed() for kept in self._results):
                yield "a result changed after its call had returned"
            if self._arguments is not None and self._arguments.has_changed():
                yield "an argument changed after its call had returned"

    def _execute_again(self, live: LiveCall, again: CallRecord, observer: Observer) -> Any:
        """The same call with other values in the same memory."""
        with self._paused():
            for storage, content in zip(live.storages, again.storages, strict=True):
                _overwrite(storage, content)
        # The same tensors, unless the kernel has changed what they look at.
        arguments = live if _as_recorded(live, again) else live_call(again, live.storages, self._device)
        return self._execute(arguments, again, observer, traced=self._item.traced)

    def _paused(self) -> Any:
        supervision = self._answering.supervision
        return torch.no_grad() if supervision is None else supervision.paused()

    def reply(self, outcomes: Iterator[msgspec.Raw]) -> Returned | Raised:
        """What the judge is told.

        Args:
            outcomes: gives the encoded outcomes of all calls of the request in order.
        """
        if self._raised is not None:
            return msgspec.structs.replace(self._raised, conduct=tuple(self._conduct))
        own = tuple([next(outcomes) for _ in range(self._executions)])
        return Returned(own, tuple(self._conduct), self._executed)


def _starts(result: Any) -> set[int]:
    """Where the memory of each result with elements starts."""
    return {tensor.untyped_storage().data_ptr() for tensor in plain_results(result)}


def _as_recorded(live: LiveCall, record: CallRecord) -> bool:
    """Whether the tensors of a call still look at what its record says; nested arguments count as changed."""
    values = (*record.args, *record.kwargs.values())
    arguments = (*live.args, *live.kwargs.values())
    return all(
        not isinstance(value, (SequenceValue, MappingValue))
        and (
            not isinstance(value, TensorValue)
            or (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
            == (tuple(value.shape), tuple(value.strides), value.offset)
        )
        for value, tensor in zip(values, arguments, strict=True)
    )


def _overwrite(storage: torch.UntypedStorage, content: Storage) -> None:
    size_bytes = storage_size(content)
    if storage.nbytes() != size_bytes:
        storage.resize_(size_bytes)  # The kernel has resized what an ``out=`` argument looks at.
    if not isinstance(content, bytes):
        storage.copy_(generate(content, storage.device))
    elif storage.device.type == "cpu":
        ctypes.memmove(storage.data_ptr(), content, size_bytes)
    elif content:
        copy_to_device(content, flat_view(storage, torch.uint8))


def raised(exc: BaseException, device_type: str) -> Raised:
    """What the judge is told of an exception, whatever it is."""
    try:
        message = str(exc)
        trace = "".join(traceback.format_exception(exc))
    except BaseException:  # noqa: BLE001 - a candidate's exception may raise where it should describe itself
        message, trace = "an exception that cannot be turned into text", ""
    line, trace = shortened(f"{type(exc).__name__}: {message}"), shortened(trace)
    return Raised(
        _kind(exc, message, device_type), _clean(line[:MAX_MESSAGE_CHARS]), _clean(trace[-MAX_TRACEBACK_CHARS:])
    )


def _kind(exc: BaseException, message: str, device_type: str) -> str:
    if isinstance(exc, NotImplementedError):
        return "unsupported"
    if isinstance(exc, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in message:
        return "memory"
    # A sticky device error leaves no usable context: the next call would fail for this one's sake.
    if kind_of(device_type).is_lost(exc, message):
        return "device"
    return "error"


def _clean(text: str) -> str:
    """Text that encodes as UTF-8, whatever the candidate put into its message."""
    return text.encode("utf-8", "replace").decode()
