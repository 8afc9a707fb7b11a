"""Stands in for a GPU of NVIDIA's or Apple's, so that torch's compiler writes Triton or Metal on a machine without one.

The compiler asks a GPU for its properties, for its current device and stream and for the state of its random numbers,
and Triton asks for a target. Nothing is launched: tensors are fake and what is written is never run here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch._dynamo import device_interface
from torch.utils._ordered_set import OrderedSet


class GPUProperties(NamedTuple):
    """What the compiler asks of a GPU; by default those of an H200."""

    name: str = "NVIDIA H200"
    major: int = 9
    minor: int = 0
    multi_processor_count: int = 132
    regs_per_multiprocessor: int = 65536
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    warp_size: int = 32
    shared_memory_per_block: int = 48 << 10
    shared_memory_per_block_optin: int = 227 << 10
    shared_memory_per_multiprocessor: int = 228 << 10
    L2_cache_size: int = 60 << 20
    total_memory: int = 140 << 30
    gcnArchName: str = ""  # noqa: N815 - its name in torch


PROPERTIES = GPUProperties()
_CAPABILITY = (PROPERTIES.major, PROPERTIES.minor)
#: Of an M4, whose reductions the compiler splits by it.
_MPS_CORES = 10


class _Interface(device_interface.CudaInterface):
    """What the compiler asks through its own interface."""

    class Worker(device_interface.CudaInterface.Worker):
        @staticmethod
        def get_device_properties(device: Any = None) -> Any:  # noqa: ARG004 - there is one
            return PROPERTIES

        @staticmethod
        def current_device() -> int:
            return 0

    get_device_properties = staticmethod(Worker.get_device_properties)
    current_device = staticmethod(Worker.current_device)

    @staticmethod
    def get_compute_capability(device: Any = None) -> int:  # noqa: ARG004 - there is one
        return PROPERTIES.major * 10 + PROPERTIES.minor

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_triton_capable(device: Any = None) -> bool:  # noqa: ARG004 - there is one
        return True

    @staticmethod
    def raise_if_triton_unavailable(device: Any = None) -> None:
        """Triton is there: it is asked for text."""


class _Driver:
    """What Triton asks of its driver."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", PROPERTIES.major * 10 + PROPERTIES.minor, PROPERTIES.warp_size)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0


@contextlib.contextmanager
def gpu() -> Iterator[None]:
    """A GPU to compile for: this machine's, or a stand-in where there is none."""
    if torch.cuda.is_available():
        yield
        return
    import triton

    device_interface.get_interface_for_device("cpu")  # Registers torch's own, which are replaced below.
    triton.runtime.driver.set_active(_Driver())
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_: PROPERTIES,
        "get_device_capability": lambda *_: _CAPABILITY,
        "get_rng_state": lambda *_: torch.empty(0),
        "set_rng_state": lambda *_: None,
        "_exchange_device": lambda index: index,
        "_maybe_exchange_device": lambda index: index,
    }
    interfaces = dict.fromkeys(("cuda", "cuda:0"), _Interface)
    with (
        mock.patch.multiple(torch.cuda, **answers),
        mock.patch.dict(device_interface.device_interfaces, interfaces),
        _without_device_guards(),
    ):
        yield


@contextlib.contextmanager
def mps() -> Iterator[None]:
    """MPS to write Metal for: this machine's, or a stand-in where there is none."""
    from torch._inductor.codegen.mps import MetalKernel

    # The class holds lists that every kernel of a process adds to, so that a text depends on those before it.
    own: dict[str, Any] = {"headers": OrderedSet(["utils"]), "multistage_reduction_entry": []}
    with contextlib.ExitStack() as around:
        around.enter_context(mock.patch.multiple(MetalKernel, **own))
        if not torch.backends.mps.is_available():
            around.enter_context(mock.patch.object(torch.backends.mps, "get_core_count", return_value=_MPS_CORES))
            around.enter_context(_without_device_guards())
        yield


@contextlib.contextmanager
def _without_device_guards() -> Iterator[None]:
    """Methods of tensors that switch to the tensor's device first, which only a torch that is built for it can do.

    Their ops do not, where the tensor is fake.
    """
    with mock.patch.multiple(torch.Tensor, __invert__=_inverted, copy_=_copied):
        yield


def _inverted(self: torch.Tensor) -> Any:
    return torch.ops.aten.bitwise_not(self)


def _copied(self: torch.Tensor, other: torch.Tensor, non_blocking: bool = False) -> Any:  # noqa: FBT001, FBT002 - as in torch
    return torch.ops.aten.copy_(self, other, non_blocking)
