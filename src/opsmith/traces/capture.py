"""Capturing traces: every ATen call that PyTorch dispatches, and how often it was made.

::

    with Capture() as capture:
        model(inputs).sum().backward()
    capture.write(Path("model.txt"), headers={"model": "mine"})

Calls are seen below autograd, so those of the backward pass are among them, and composite
functions appear as the ops they are made of.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from opsmith.core.case import ComplexValue, MappingValue, NamedValue, SequenceValue, TensorValue, Value
from opsmith.core.dtypes import TENSOR_DTYPES
from opsmith.core.run import write_atomically
from opsmith.core.trace import TracedCall, TraceEntry
from opsmith.errors import BadInput
from opsmith.traces.grammar import parse_call, print_arguments, print_trace

#: Ops that a dispatch mode sees and that do no work. Autograd detaches what it saves only because
#: somebody watches; a new tensor is lifted whether or not a transform is active.
BOOKKEEPING = frozenset({"detach.default", "lift_fresh.default"})

_DTYPE_NAMES = {getattr(torch, long): short for short, long in TENSOR_DTYPES.items()}
_PLAIN_CLASSES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor})


class CannotTrace(Exception):
    """A call that trace text has no form for; says why."""


class _Record:
    """What was captured; the captures of several threads share one."""

    def __init__(self) -> None:
        # A signal may come while it is held, and have the record read.
        self.lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        self.calls = 0
        self.left_out: Counter[str] = Counter()
        self.untraceable: Counter[str] = Counter()
        self.counts: Counter[Hashable] = Counter()
        self.traced: dict[Hashable, TracedCall] = {}


class Capture(TorchDispatchMode):
    """Counts the distinct ATen calls that are made while it is active.

    Three kinds of calls are left out: ops of other namespaces, with what they call inside;
    :data:`BOOKKEEPING`; and questions about shapes and layouts that compute nothing. A call with an
    argument that has no place in a trace, such as a sparse or a quantized tensor, is untraceable.
    Both are counted, and made all the same: whatever cannot be written down, the program goes on.

    A capture sees the calls of the thread that entered it; others enter one made by :meth:`beside`.

    Args:
        device: type of the device whose work this is about: calls that touch no tensor there are
            left out uncounted. By default every call belongs to the trace.
        progress: called with the number of calls so far, about every thousand calls.
        each: called after every call that was recorded.
    """

    # Operators that take functions are passed on; what runs inside them is seen all the same.
    supports_higher_order_operators = True

    def __init__(
        self,
        *,
        device: str | None = None,
        progress: Callable[[int], None] | None = None,
        each: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._progress = progress
        self._each = each
        self._record = _Record()

    def beside(self) -> Capture:
        """A capture for another thread, which adds to the same record."""
        other = Capture(device=self._device, progress=self._progress, each=self._each)
        other._record = self._record
        return other

    @property
    def calls(self) -> int:
        """Number of calls that were recorded."""
        return self._record.calls

    @property
    def left_out(self) -> Counter[str]:
        """Full name of an op -> number of its calls."""
        return self._record.left_out

    @property
    def untraceable(self) -> Counter[str]:
        """Op and reason -> number of calls."""
        return self._record.untraceable

    def start_anew(self) -> None:
        """Forget all calls: for a process that was forked, whose calls are its own."""
        self._record.lock = threading.RLock()  # Another thread may have held it.
        self._record.clear()

    def add(self, entries: Iterable[TraceEntry]) -> None:
        """Count further calls, those of another process."""
        record = self._record
        with record.lock:
            keys = {(call.op, print_arguments(call)): key for key, call in record.traced.items()}
            for entry in entries:
                text = entry.call.op, print_arguments(entry.call)
                key = keys.setdefault(text, text)
                record.traced.setdefault(key, entry.call)
                record.counts[key] += entry.count
                record.calls += entry.count

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and not isinstance(args[0], torch.Tensor):
            return args[0]  # TorchScript hands a constant as the number that it asks for.
        op = _traced_name(func)
        if op is None:
            with self._record.lock:
                self.left_out[str(func)] += 1
            return func(*args, **kwargs)
        # In inference mode torch leaves it to whoever watches to split composite functions.
        if torch.is_inference_mode_enabled() and func._can_decompose():
            with self:
                return func.decompose(*args, **kwargs)
        key = self._described(op, args, kwargs)
        result = func(*args, **kwargs)
        if key is not None and (self._device is None or self._touches_device((args, kwargs, result))):
            self._count(key)
        return result

    def _described(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
        """The call as it is counted, written down before it is made: it may change the shapes of its arguments."""
        record = self._record
        try:
            key = (op, *[_key(value) for value in args], *[(name, _key(value)) for name, value in kwargs.items()])
            if key not in record.counts:
                call = self._trace(op, args, kwargs)
                parse_call(op, print_arguments(call))  # Some dtypes and names have no place in the text.
                with record.lock:
                    record.traced.setdefault(key, call)
        except CannotTrace as exc:
            reason = str(exc)
        except BadInput:
            reason = "an argument has no form in a trace"
        except Exception as exc:  # noqa: BLE001 - tensors of strangers' classes may raise anything
            reason = f"an argument cannot be described ({type(exc).__name__})"
        else:
            return key
        with record.lock:
            self.untraceable[f"{op}: {reason}"] += 1
        return None

    def entries(self) -> list[TraceEntry]:
        """The distinct calls with their counts: ops by name, the calls of an op as they first came."""
        with self._record.lock:
            counts = list(self._record.counts.items())
        found = [TraceEntry(call=self._record.traced[key], count=count) for key, count in counts]
        return sorted(found, key=lambda entry: entry.call.op)

    def write(self, path: Path, *, headers: Mapping[str, str] | None = None) -> None:
        """Write a trace file: ``# key: value`` lines, the version of torch among them, then the calls."""
        text = print_trace(self.entries(), headers={**(headers or {}), "torch": torch.__version__})
        write_atomically(path, text.encode())

    def _count(self, key: Hashable) -> None:
        with self._record.lock:
            self._record.counts[key] += 1
            self._record.calls += 1
        if self._progress is not None and self.calls % 1000 == 0:
            self._progress(self.calls)
        if self._each is not None:
            self._each()

    def _touches_device(self, values: Any) -> bool:
        return any(isinstance(leaf, torch.Tensor) and leaf.device.type == self._device for leaf in tree_leaves(values))

    def _trace(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedCall:
        storages = 0

        def encode(value: Any) -> Value:
            nonlocal storages
            if isinstance(value, torch.Tensor):
                storages += 1
                return _tensor_value(value, storages - 1)
            if isinstance(value, (list, tuple)):
                return SequenceValue(tuple([encode(item) for item in value]), isinstance(value, tuple))
            if isinstance(value, dict):
                return MappingValue({name: encode(item) for name, item in value.items()})
            if isinstance(value, torch.device):
                is_own = self._device in {None, value.type}
                return NamedValue("device", "cuda" if is_own else str(value))
            return _constant(value)

        return TracedCall(
            op=op,
            args=tuple([encode(value) for value in args]),
            kwargs={name: encode(value) for name, value in kwargs.items()},
        )


@functools.cache
def _traced_name(func: Any) -> str | None:
    """``packet.overload`` of an op, or None if its calls are left out."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return None
    schema = func._schema
    computes = (
        schema.is_mutable
        or torch.Tag.data_dependent_output in func.tags
        or any("Tensor" in str(result.type) for result in schema.returns)
    )
    name = str(func).removeprefix("aten.")
    return name if computes and name not in BOOKKEEPING else None


def _key(value: Any) -> Hashable:
    """Equal for arguments that a trace writes alike."""
    if isinstance(value, torch.Tensor):
        return (*_sizes(value), value.dtype)
    if isinstance(value, (list, tuple)):
        return (type(value), *[_key(item) for item in value])
    if isinstance(value, dict):
        return (dict, *[(name, _key(item)) for name, item in value.items()])
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _key(_hint(value))
    # 1 and True and 1.0 are equal as keys and differ as arguments; a NaN has to equal itself.
    return (type(value), repr(value))


def _sizes(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of a tensor that can stand in a trace.

    Raises:
        CannotTrace: it is no plain strided tensor.
    """
    if type(tensor) not in _PLAIN_CLASSES:
        raise CannotTrace(f"an argument is a {type(tensor).__name__}")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise CannotTrace(f"an argument has layout {tensor.layout} or is quantized")
    if tensor.is_nested:
        raise CannotTrace("an argument is a nested tensor")
    if tensor._has_symbolic_sizes_strides:
        return tuple([_hint(size) for size in tensor.shape]), tuple([_hint(stride) for stride in tensor.stride()])
    return tuple(tensor.shape), tensor.stride()


def _hint(value: Any) -> Any:
    """The value that a symbolic number had while it was traced; a plain number is its own.

    Raises:
        CannotTrace: the number depends on data.
    """
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    if not value.node.has_hint():
        raise CannotTrace("a size depends on data")
    return value.node.hint


def _tensor_value(tensor: torch.Tensor, storage: int) -> TensorValue:
    if tensor.dtype not in _DTYPE_NAMES:
        raise CannotTrace(f"an argument has dtype {tensor.dtype}")
    shape, strides = _sizes(tensor)
    return TensorValue(storage, _DTYPE_NAMES[tensor.dtype], shape, strides, 0, "cuda")


def _constant(value: Any) -> Value:
    value = _hint(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, complex):
        return ComplexValue(value.real, value.imag)
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return NamedValue(type(value).__name__, str(value).removeprefix("torch."))
    if isinstance(value, torch.Generator):
        return None
    raise CannotTrace(f"an argument is a {type(value).__name__}")
