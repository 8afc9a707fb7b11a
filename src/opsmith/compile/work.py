"""Counting what a model does to a device: kernels that are launched, and bytes that they move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: What allocates, asks or waits, and computes nothing.
_NO_WORK = ("empty", "new_empty", "_local_scalar_dense", "is_", "sym_", "lift_fresh", "detach", "alias")
#: Calls of libraries, as the profiler names them, that compiled code makes on a CPU.
_CPU_KERNEL = "_cpp_fused_"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of a model does.

    Attributes:
        launches: kernels, generated or of libraries; on a CPU calls that compute stand for them.
        bytes_moved: read and written by them, if each reads every input once and writes every output once.
    """

    launches: int
    bytes_moved: int


class EagerCounter(TorchDispatchMode):
    """Counts the ATen calls that compute, and the bytes of their tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0
        self.bytes_moved = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if computes(func):
            self.calls += 1
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
            self.bytes_moved += sum(map(_bytes_of, tensors))
        return result


def computes(op: Any) -> bool:
    """Whether an overload computes something: it is no view, no allocation and no question."""
    if not isinstance(op, torch._ops.OpOverload) or op.name().partition("::")[2].startswith(_NO_WORK):
        return False
    returns = op._schema.returns
    return not returns or not all(one.alias_info is not None and not one.alias_info.is_write for one in returns)


def _bytes_of(tensor: torch.Tensor) -> int:
    """Of the elements that there are: an expanded dimension is read once."""
    if tensor.layout != torch.strided:
        return 0
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or not size)
    count = 1
    for size in sizes:
        count *= int(size)
    return count * tensor.element_size()


class CompiledBytes:
    """Sums up what Inductor knows its kernels to read and write, graph by graph.

    A function of Inductor's setting ``_post_fusion_custom_pass``, which is called with the kernels of a graph.
    """

    def __init__(self) -> None:
        self.bytes_moved = 0

    def __call__(self, nodes: list[Any]) -> list[Any]:
        self.bytes_moved += sum(int(node.get_read_write_buffers_sizes()) for node in nodes)
        return nodes


def eager_work(run: Callable[[], object], device: str) -> Work:
    """What a call does that is not compiled."""
    with EagerCounter() as counter:
        run()
    launches = counter.calls if device == "cpu" else profiled_launches(run, device)
    return Work(launches=launches, bytes_moved=counter.bytes_moved)


def profiled_launches(run: Callable[[], object], device: str) -> int:
    """Kernels that torch's profiler sees in a call."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device != "cpu" else [])]
    with profile(activities=activities, acc_events=True) as profiler:
        run()
        if device != "cpu":
            torch.accelerator.synchronize()
    events = list(profiler.events())
    if device != "cpu":
        on_device = [event for event in events if event.device_type != torch._C._autograd.DeviceType.CPU]
        return sum(not event.name.startswith(("Memcpy", "Memset", "##", "Torch-Compiled")) for event in on_device)
    return sum(_is_cpu_kernel(event) for event in events)


def _is_cpu_kernel(event: Any) -> bool:
    """A generated kernel, or the outermost call of ATen's that computes."""
    if _CPU_KERNEL in event.name:
        return True
    parent = event.cpu_parent
    while parent is not None:
        if _aten_computes(parent.name) or _CPU_KERNEL in parent.name:
            return False
        parent = parent.cpu_parent
    return _aten_computes(event.name)


def _aten_computes(name: str) -> bool:
    namespace, _, packet = name.partition("::")
    if namespace not in {"aten", "mkldnn", "mkl", "opsmith"} or packet.startswith(_NO_WORK):
        return False
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return found is not None and any(computes(getattr(found, overload)) for overload in found.overloads())
