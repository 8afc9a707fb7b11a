"""A device for launch plans without a GPU: CPU tensors, and kernels in numpy that are launched as Triton's are.

A stand-in kernel compiles to what a plan reads of a compiled kernel. Its launches, by itself, by a plan in Python or
by a plan in C++, all end in :func:`_run`, which sees what a GPU would: a handle, a grid and packed parameters.
"""

from __future__ import annotations

import ctypes
import inspect
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton
from torch import Tensor

from opsmith.dispatch.plans import cuda_driver
from opsmith.dispatch.plans.triton_launches import Watcher

#: A kernel directory that is launched here.
KERNELS = Path(__file__).parent / "launch_kernels"

Array = np.ndarray[Any, np.dtype[Any]]
#: What a kernel does: its grid, and its parameters as numbers; pointers are addresses.
Function = Callable[..., None]

_NUMPY: dict[torch.dtype, Any] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.int32: np.int32,
    torch.int64: np.int64,
}
_FORMATS = {"i32": "<i", "i64": "<q", "fp32": "<f", "fp64": "<d"}
#: The streams of the last launches.
launched: deque[int] = deque(maxlen=100)
#: What the last ones by configuration said besides: numbers of attributes, and their values.
overlapped: deque[list[tuple[int, int]]] = deque(maxlen=100)
#: How many devices there are, and which is the current one.
DEVICES, CURRENT = 1, {"index": -1}
#: Whether what is launched becomes part of a graph.
CAPTURING = {"now": False}
#: By handle: what runs, the types of its parameters, and all arguments, of which constants stay.
_functions: dict[int, tuple[Function, tuple[str, ...], tuple[Any, ...]]] = {}
_lock = threading.Lock()


def memory(address: int, count: int, dtype: Any = np.float64) -> Array:
    """So many elements at an address."""
    return np.ctypeslib.as_array((ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address)).view(dtype)


class Kernel:
    """As a function that ``triton.jit`` decorates.

    Args:
        function: what one launch does; parameters that are tuples arrive flattened, as on a device.
        metadata: what differs from a plain kernel's metadata.
    """

    def __init__(self, function: Function, **metadata: Any) -> None:
        self.function, self.metadata = function, metadata
        self.compiled: dict[tuple[Any, ...], Any] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def run(*args: Any, **meta: Any) -> None:
            self.unseen(grid, *args)
            if _watching.watcher is not None:
                _watching.watcher(self._compiled(args), grid, args, meta)

        return run

    def unseen(self, grid: tuple[int, ...], *args: Any) -> None:
        """Launch in a way that is counted and not watched, as what was compiled can be launched by itself."""
        compiled = self._compiled(args)
        slots = [_slot(kind, value) for kind, value in _flat(compiled.kinds, args) if kind != "constexpr"]
        triton.knobs.runtime.launch_enter_hook(None)
        _run(compiled.function, grid, slots, 0)

    def _compiled(self, args: tuple[Any, ...]) -> Any:
        kinds = tuple(map(_kind, args))
        flat = [*_flat(kinds, args)]
        constants = tuple(value if kind == "constexpr" else kind for kind, value in flat)
        if constants not in self.compiled:
            with _lock:
                handle = len(_functions) + 1
                _functions[handle] = self.function, tuple(kind for kind, _ in flat), constants
            named = [*inspect.signature(self.function).parameters][1:]
            names = named if len(named) == len(args) else [f"argument_{index}" for index in range(len(args))]
            plain = {
                "num_warps": 4,
                "num_ctas": 1,
                "shared": 128,
                "launch_cooperative_grid": False,
                "launch_pdl": False,
                "global_scratch_size": 0,
                "profile_scratch_size": 0,
            }
            self.compiled[constants] = SimpleNamespace(
                function=handle,
                kinds=kinds,
                metadata=SimpleNamespace(**plain | self.metadata),
                src=SimpleNamespace(
                    signature=dict(zip(names, kinds, strict=True)), fn=SimpleNamespace(arg_names=names)
                ),
            )
        return self.compiled[constants]


def _kind(value: Any) -> Any:
    """The type that Triton gives an argument: a 1 and None are constants."""
    if isinstance(value, tuple):
        return tuple(map(_kind, value))
    if isinstance(value, Tensor):
        return f"*{value.dtype}"
    if value is None or (isinstance(value, int) and value == 1):
        return "constexpr"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def _flat(kinds: Any, values: Any) -> Iterator[tuple[str, Any]]:
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(kind, value)
        else:
            yield kind, value


def _slot(kind: str, value: Any) -> int:
    if kind.startswith("*"):
        return int(value.data_ptr())
    return int.from_bytes(struct.pack(_FORMATS[kind], value), "little")


def _run(handle: int, grid: tuple[int, ...], slots: list[int], stream: int) -> None:
    function, kinds, constants = _functions[handle]
    launched.append(stream)
    left = iter(slots)
    function(grid, *(_value(kind, left, constant) for kind, constant in zip(kinds, constants, strict=True)))


def _value(kind: str, slots: Iterator[int], constant: Any) -> Any:
    """What a kernel sees of a parameter, in whose slot only the first bytes are its own."""
    if kind == "constexpr":
        return constant
    slot = next(slots)
    if kind.startswith("*"):
        return slot
    raw = (slot % (1 << 64)).to_bytes(8, "little")
    return struct.unpack_from(_FORMATS[kind], raw)[0]


def _launch_from_python(  # noqa: PLR0917 - as torch's own
    function: int, x: int, y: int, z: int, warps: int, shared: int, types: str, slots: tuple[int, ...], stream: int
) -> None:
    assert (4, 128) == (warps, shared)
    assert "K" * len(slots) == types
    _run(function, (x, y, z), [*slots], stream)


_PARAMETERS = ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64))


def _launch_from_cpp(config: Any, function: int, parameters: Any, _: Any) -> int:
    told = config[0]
    assert ([128, 1, 1], 128) == ([*told.block], told.shared_bytes)
    overlapped.append([(one.id, one.value[0]) for one in told.attributes[: told.attribute_count]])
    count = sum(kind != "constexpr" for kind in _functions[function][1])
    # Beyond them there are two addresses of scratch memory.
    assert [0, 0] == [parameters[count][0], parameters[count + 1][0]]
    if not error.code:
        _run(function, (*told.grid,), [parameters[index][0] for index in range(count)], told.stream or 0)
    return int(error.code)


#: What the driver answers to launches from C++.
error = SimpleNamespace(code=0)


def _stream_for_cpp(_: int, stream: Any) -> int:
    stream[0] = 77
    return 0


#: Alive as long as C++ may call them.
_launch_callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(cuda_driver.LaunchConfig), ctypes.c_void_p, _PARAMETERS, ctypes.c_void_p
)(_launch_from_cpp)
_stream_callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))(_stream_for_cpp)


def _address(callback: Any) -> int:
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address
    return address


DRIVER = cuda_driver.Driver(
    device_type="cpu",
    allocate=torch._C._dynamo.guards._empty_strided_cpu,  # type: ignore[attr-defined] # It has no stub.
    stream=lambda _: 55,
    launch=_launch_from_python,
    device_count=lambda: DEVICES,
    current_device=lambda: CURRENT["index"],
    capturing=lambda: CAPTURING["now"],
    generator=lambda _: torch.cuda.default_generators[0],
    make_context=lambda: setattr(error, "code", 0),
    launch_address=_address(_launch_callback),
    stream_address=_address(_stream_callback),
)


class _Watching(threading.local):
    watcher: Watcher | None = None


_watching = _Watching()


@contextmanager
def _watched_launches(watcher: Watcher) -> Iterator[None]:
    _watching.watcher = watcher
    try:
        yield
    finally:
        _watching.watcher = None


@contextmanager
def stand_in_driver(carrying_out: cuda_driver.Driver = DRIVER) -> Iterator[None]:
    """Carry out plans on the CPU, and watch stand-in kernels instead of Triton's."""

    def driver(device_type: str) -> cuda_driver.Driver | None:
        return carrying_out if device_type == "cpu" else None

    with (
        mock.patch("opsmith.dispatch.serving.driver", driver),
        mock.patch("opsmith.dispatch.registry.driver", driver),
        mock.patch("opsmith.dispatch.plans.recorder.watched_launches", _watched_launches),
    ):
        yield
