"""NVIDIA's management library: which GPUs there are, their memory, and the driver's version.

It comes with the driver and is called without a package between. Names and structures are those of its header,
``nvml.h``. Once asked it stays open: where nobody else uses a GPU the driver sets it up for each program that opens it,
such as nvidia-smi, and takes it down after the last.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

_LIBRARY = "libnvidia-ml.so.1"
_UUID_PREFIXES = ("GPU-", "MIG-")
_TEXT_BYTES = 96


class Nvml(Protocol):
    """The library: a function for each name, which returns 0 or an error code."""

    def __getattr__(self, name: str, /) -> Callable[..., Any]: ...


class _Memory(ctypes.Structure):
    """As ``nvmlMemory_t``."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class GpuMemory(NamedTuple):
    """Of one GPU, with the UUID that tells it from others."""

    uuid: str
    total_bytes: int
    free_bytes: int


def loaded() -> Nvml | None:
    """The library, not initialised; None on a machine without NVIDIA's driver."""
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError:
        return None


@functools.cache
def opened() -> Nvml | None:
    """The library, for as long as this process lives; None where there is none or it finds no driver."""
    library = loaded()
    return library if library is not None and library.nvmlInit_v2() == 0 else None


def driver_version() -> str | None:
    """As in ``580.159.04``."""
    library = opened()
    return None if library is None else text_of(library.nvmlSystemGetDriverVersion)


def uuids() -> list[str]:
    """Of all GPUs of the machine, in the driver's order."""
    library, count = opened(), ctypes.c_uint()
    if library is None or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    handles = [_handle(library, str(number)) for number in range(count.value)]
    found = [text_of(functools.partial(library.nvmlDeviceGetUUID, handle)) for handle in handles if handle is not None]
    return [uuid for uuid in found if uuid is not None]


def memory_of(gpu: str) -> GpuMemory | None:
    """What a GPU has, and what is free just now; None where nobody says.

    Args:
        gpu: its UUID as the driver writes it, its number in the driver's order, or the bus id of its PCI slot.
    """
    library, memory = opened(), _Memory()
    handle = None if library is None else _handle(library, gpu)
    if library is None or handle is None or library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
        return None
    uuid = text_of(functools.partial(library.nvmlDeviceGetUUID, handle))
    return None if uuid is None else GpuMemory(uuid, memory.total, memory.free)


def find(library: Nvml, gpu: str, handle: ctypes.c_void_p) -> int:
    """Fill a handle of a GPU, named as for :func:`memory_of`; returns 0 or an error code."""
    error: int
    if gpu.isdecimal():
        error = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(gpu)), ctypes.byref(handle))
    elif gpu.startswith(_UUID_PREFIXES):
        error = library.nvmlDeviceGetHandleByUUID(gpu.encode(), ctypes.byref(handle))
    else:
        error = library.nvmlDeviceGetHandleByPciBusId_v2(gpu.encode(), ctypes.byref(handle))
    return error


def _handle(library: Nvml, gpu: str) -> ctypes.c_void_p | None:
    handle = ctypes.c_void_p()
    return handle if find(library, gpu, handle) == 0 else None


def text_of(ask: Callable[..., int]) -> str | None:
    """What a function of the library writes into a buffer, of which it is given the size; None if it fails."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    return text.value.decode() if ask(text, ctypes.c_uint(_TEXT_BYTES)) == 0 else None
