"""What carries out launch plans on a device type: its allocator, its stream and its way to launch.

All of it is torch's and the driver's own; nothing here is compiled.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from opsmith.dispatch.plans.plan import Launch

#: Torch's launcher keeps so many on its stack.
MOST_PARAMETERS = 120
#: CUDA_ERROR_INVALID_CONTEXT: this thread has not used the device yet.
_NO_CONTEXT = 201


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of one device type.

    Attributes:
        device_type: ``cuda``, ...
        allocate: memory of a shape, strides and dtype on the current device.
        stream: the handle of a device's current stream, by the device's index.
        launch: as ``torch._C._StaticCudaLauncher._launch_kernel``: function, grid in three numbers, warps,
            shared bytes, a letter for the type of each parameter, parameters, stream.
        device_count: how many devices there are.
        current_device: the index of the current one.
        capturing: whether what is launched becomes part of a graph.
        generator: of random numbers, of a device by its index.
        make_context: lets this thread use the current device.
        launch_address: that of ``cuLaunchKernelEx``, for C++ and for launches that ``launch`` cannot make.
        stream_address: as ``stream``, for C++: that of ``aoti_torch_get_current_cuda_stream``.
    """

    device_type: str
    allocate: Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], Tensor]
    stream: Callable[[int], int]
    launch: Callable[..., None]
    device_count: Callable[[], int]
    current_device: Callable[[], int]
    capturing: Callable[[], bool]
    generator: Callable[[int], Any]
    make_context: Callable[[], object]
    launch_address: int
    stream_address: int


class LaunchAttribute(ctypes.Structure):
    """As ``CUlaunchAttribute``: one of a kernel's settings by its number, and a value of at most 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("_", ctypes.c_int), ("value", ctypes.c_int * 16))


class LaunchConfig(ctypes.Structure):
    """As ``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


#: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel waits by itself for those before it.
_OVERLAPS = LaunchAttribute(id=6, value=(1,))


def running(driver: Driver, launch: Launch) -> Callable[[Sequence[int], int], None]:
    """The function that launches with given parameters on a stream.

    It raises RuntimeError where the driver refuses that. Kernels overlap in a CUDA graph. Calls one by one come later
    than the kernel before ends, and are launched in a third of the time by torch's launcher, which lets none overlap.
    """

    def by_config(slots: Sequence[int], stream: int) -> None:
        _packed_by_config(driver, launch, slots)(stream)

    if len(launch.slots) > MOST_PARAMETERS:
        return by_config
    kinds = "K" * len(launch.slots)
    run = functools.partial(driver.launch, launch.function, *launch.grid, launch.warps, launch.shared_bytes, kinds)
    if not launch.overlaps:
        return run
    capturing = driver.capturing

    def either(slots: Sequence[int], stream: int) -> None:
        (by_config if capturing() else run)(slots, stream)

    return either


def packed(driver: Driver, launch: Launch, slots: Sequence[int]) -> Callable[[int], None]:
    """As :func:`running`, with these parameters, as often as it is called."""
    if len(slots) > MOST_PARAMETERS:
        return _packed_by_config(driver, launch, slots)
    return functools.partial(running(driver, launch), tuple(slots))


def _packed_by_config(driver: Driver, launch: Launch, slots: Sequence[int]) -> Callable[[int], None]:
    words = array("Q", slots)
    first, count = words.buffer_info()
    places = array("Q", range(first, first + 8 * count, 8))
    parameters, _ = places.buffer_info()
    run = _launch_at(driver.launch_address)
    block, attributes = (32 * launch.warps, 1, 1), ctypes.pointer(_OVERLAPS)

    def launched(stream: int, _: tuple[array[int], array[int]] = (words, places)) -> None:  # They stay while this does.
        config = LaunchConfig(launch.grid, block, launch.shared_bytes, stream, attributes, launch.overlaps)
        error = run(config, launch.function, parameters, None)
        if error == _NO_CONTEXT:
            driver.make_context()
            error = run(config, launch.function, parameters, None)
        if error:
            raise RuntimeError(f"a kernel of a launch plan was refused with CUDA error {error}")

    return launched


@functools.cache
def _launch_at(address: int) -> Callable[..., int]:
    """``cuLaunchKernelEx``."""
    pointer = ctypes.c_void_p
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(LaunchConfig), pointer, pointer, pointer)(address)


def driver(device_type: str) -> Driver | None:
    """The driver of a device type, or None where plans cannot be carried out. Initialises no device."""
    return _cuda() if device_type == "cuda" else None


@functools.cache
def _cuda() -> Driver | None:
    if torch.version.cuda is None:
        return None
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        torch_cuda = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"))
        addresses = [
            ctypes.cast(function, ctypes.c_void_p).value or 0
            for function in (cuda.cuLaunchKernelEx, torch_cuda.aoti_torch_get_current_cuda_stream)
        ]
    except (OSError, AttributeError):  # A machine without a GPU, or a build that lacks a part.
        return None
    return Driver(
        device_type="cuda",
        allocate=torch._C._dynamo.guards._empty_strided_cuda,  # type: ignore[attr-defined] # It has no stub.
        stream=torch._C._cuda_getCurrentRawStream,
        launch=torch._C._StaticCudaLauncher._launch_kernel,
        device_count=torch.cuda.device_count,
        current_device=torch._C._cuda_getDevice,
        capturing=torch._C._cuda_isCurrentStreamCapturing,
        generator=lambda index: torch.cuda.default_generators[index],
        make_context=torch.cuda.mem_get_info,
        launch_address=addresses[0],
        stream_address=addresses[1],
    )
