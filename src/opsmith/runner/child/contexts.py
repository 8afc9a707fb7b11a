"""Device contexts: which device it is, and for workers made ahead and kept small while they wait."""

from __future__ import annotations

import ctypes

import torch

from opsmith.devices import kind_of
from opsmith.runner.protocol.referee_messages import DeviceOpened

_CU_LIMIT_STACK_SIZE = 0
#: Bytes a thread. A context sets its default aside for every thread that the device can hold.
_SMALL_STACK_BYTES = 256
_DEFAULT_STACK_BYTES = 1024


def open_device(name: str) -> DeviceOpened:
    """Make the context of a device, by torch's string for it, and tell which device it is."""
    kind = kind_of(name)
    try:
        kind.register()
        torch.zeros(1, device=name).item()  # The meta device holds no values.
    except Exception as exc:  # noqa: BLE001 - every device type fails in its own way
        return DeviceOpened(name, str(exc).strip().splitlines()[0][:300], name)
    if name.startswith("cpu"):
        return DeviceOpened(name, None, name)
    device = torch.device(name)
    return DeviceOpened(kind.name(device), None, kind.identity(device), count=kind.count())


def make_waiting_context(device: torch.device) -> None:
    """Make the device's context, with little memory for as long as it waits for a kernel."""
    if device.type != "cpu":
        torch.zeros(1, device=device)
    if kind_of(device.type).nvidia_driver:
        _limit_stack(_SMALL_STACK_BYTES)


def end_waiting(device: torch.device) -> None:
    """Give a stranger's kernels the stack that they would find anywhere else."""
    if kind_of(device.type).nvidia_driver:
        _limit_stack(_DEFAULT_STACK_BYTES)


def _limit_stack(size_bytes: int) -> None:
    # A failure leaves the limit as it is: a context that is larger than it need be.
    ctypes.CDLL("libcuda.so.1").cuCtxSetLimit(_CU_LIMIT_STACK_SIZE, ctypes.c_size_t(size_bytes))
