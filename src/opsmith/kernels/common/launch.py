"""What every kernel's host side shares: which tensors are served, number types, and the launch."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.language.target_info import cuda_capability_geq

#: The type that a kernel reads and writes for each torch dtype that it serves.
ELEMENT_TYPE: dict[torch.dtype, Any] = {
    torch.bool: tl.int1,
    torch.uint8: tl.uint8,
    torch.uint16: tl.uint16,
    torch.uint32: tl.uint32,
    torch.uint64: tl.uint64,
    torch.int8: tl.int8,
    torch.int16: tl.int16,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}

#: The type that arithmetic runs in where it is not the element type itself: half types in float32,
#: rounded once at the end; bools as 0 and 1, so that + is "or" and * is "and" after the final cast.
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.int32}

#: Under the interpreter a program costs milliseconds whatever its size: few and large ones.
INTERPRETED: bool = triton.knobs.runtime.interpret
INTERPRETED_TILE = 1 << 16
#: Of compute capability 9.0 (Hopper) on a kernel may be launched while the one before it ends.
_COMPILED, _HOPPER = tl.constexpr(not INTERPRETED), tl.constexpr(9)


@triton.jit
def pdl_prologue() -> None:
    """Programmatic dependent launch: let the next kernel be launched, and wait for the results of those before.

    The first statement of every kernel, by each of its programs: nothing is read or written before. On Hopper
    :func:`launch` says that a kernel does so (CUDA's programming guide), and the GPU brings its programs to the
    multiprocessors while the last ones of the kernel before it end: in a CUDA graph on an H200 a small kernel takes
    0.53 us instead of 1.06 (docs/adr/0019). Without this statement, kernels would overlap that depend on each other.
    """
    if _COMPILED:  # noqa: SIM102 - the second condition is none for the interpreter.
        if cuda_capability_geq(_HOPPER):
            gdc_launch_dependents()
            gdc_wait()


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that arithmetic on elements of ``dtype`` runs in."""
    return _WIDER.get(dtype, dtype)


def compute_type(dtype: torch.dtype) -> Any:
    """As :func:`compute_dtype`, as Triton names it."""
    return ELEMENT_TYPE[compute_dtype(dtype)]


def require_served(
    *tensors: torch.Tensor | None, dtypes: Sequence[torch.dtype] | None = None, joins_numbers: bool = False
) -> None:
    """Decline what no kernel here serves.

    Args:
        tensors: the arguments; None stands for an absent one.
        dtypes: what this op serves, where that is less than :data:`ELEMENT_TYPE`.
        joins_numbers: a CPU tensor without dimensions may join those of a device, as a number.

    Raises:
        NotImplementedError: with one line that says which property is not served.
    """
    served = ELEMENT_TYPE if dtypes is None else dtypes
    joins = joins_numbers and any(tensor is not None and tensor.is_cuda for tensor in tensors)
    for tensor in tensors:
        if tensor is None:
            continue
        if tensor.layout is not torch.strided:
            raise NotImplementedError(f"{tensor.layout} tensors are not served")
        if tensor.dtype not in served:
            raise NotImplementedError(f"{tensor.dtype} is not served")
        if tensor.is_conj() or tensor.is_neg():
            raise NotImplementedError("lazily conjugated or negated tensors are not served")
        if not (tensor.is_cuda or INTERPRETED or (joins and not tensor.ndim)):
            raise NotImplementedError(f"{tensor.device.type} tensors need TRITON_INTERPRET=1 in the environment")


def number_bits(value: float, element: Any) -> int:
    """A Python number as the int64 argument that :func:`indexing.number` reads back as ``element``.

    Triton passes a float argument as float32; the bits of a double lose nothing.
    """
    if element.is_floating():
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    return (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)


def loop_bound(value: int) -> Any:
    """A run-time loop bound; a plain int on a device.

    The interpreter of Triton 3.6 cannot turn an integer argument into a bound under numpy 2.4,
    but passes a constexpr through.
    """
    return tl.constexpr(value) if INTERPRETED else value


def require_plain_memory(layout: torch.layout | None, pin_memory: bool | None) -> None:
    """Decline what a creation op may ask of new memory that nothing here makes.

    Raises:
        NotImplementedError: a sparse layout, or pinned memory.
    """
    if layout not in (None, torch.strided) or pin_memory:
        raise NotImplementedError("sparse and pinned tensors are not served")


def workplace(device: torch.device | None, model: torch.Tensor) -> torch.device:
    """Where kernels write a new tensor for ``device``: beside ``model`` what is to lie on a host where none run.

    Raises:
        NotImplementedError: that, while a CUDA graph is captured: it cannot hold the wait for a copy to the host.
    """
    if INTERPRETED or device is None or device.type != "cpu" or model.device.type == "cpu":
        return device or model.device
    if torch.cuda.is_current_stream_capturing():
        raise NotImplementedError("nothing is copied to the host while a CUDA graph is captured")
    return model.device


def delivered(out: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    """``out``, or a copy on ``device`` where that is no device of the :func:`workplace`'s type."""
    if device is None or device.type == out.device.type:
        return out
    return torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=device).copy_(out)


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """How many programs run side by side at least; 1 under the interpreter."""
    return 1 if INTERPRETED else torch.cuda.get_device_properties(device).multi_processor_count


def address_of(tensor: torch.Tensor) -> int:
    """Where the first element lies: of a call's arguments plans hold it modulo 16, the size of the widest access."""
    return tensor.data_ptr()


def launch(kernel: Any, grid: tuple[int, ...], device: torch.device, *args: Any, **meta: Any) -> None:
    """Run ``kernel`` over ``grid`` on the tensors' own device, which need not be the current one."""
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[grid](*map(settled, args), **meta, **launch_options(device))


@functools.cache
def launch_options(device: torch.device) -> dict[str, Any]:  # noqa: ARG001 - it is the current one, and what is kept is its own.
    """What a launch on the current device says of every kernel, see :func:`pdl_prologue`."""
    return {} if INTERPRETED or not cuda_capability_geq(9) else {"launch_pdl": True}


def settled(argument: Any) -> Any:
    """An argument as a kernel gets it: a tuple of tuples has a 1 behind its entries.

    Triton compiles an argument of 1 into the kernel. Where a tuple holds tuples and numbers, Triton 3.6 forgets that 1
    of an inner tuple beyond the end of a loop or a branch, unless the outer one has such an entry of its own after it.
    Of a named tuple that holds tuples alone it forgets nothing: that keeps its names.
    """
    if not isinstance(argument, tuple) or not any(isinstance(entry, tuple) for entry in argument):
        return argument
    if hasattr(argument, "_fields") and all(isinstance(entry, tuple) for entry in argument):
        return type(argument)(*map(settled, argument))
    return (*map(settled, argument), 1)


Named = TypeVar("Named", bound=tuple[Any, ...])


@functools.lru_cache(maxsize=4096, typed=True)
def constants(values: Named) -> Named:
    """A named tuple of numbers, types and flags that a kernel is compiled for, as one argument.

    Triton compiles in what is a ``constexpr``, in a tuple too. Its interpreter sees no None through one.
    """
    made: Any = type(values)
    result: Named = made(*(None if value is None else tl.constexpr(value) for value in values))
    return result


def layout_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides as plain tuples, which hash and compare fast."""
    return tuple(tensor.shape), tensor.stride()


def pick_device(operands: Sequence[object]) -> torch.device:
    """The device that the result lies on: a 0-dim CPU tensor may join tensors of another device.

    Raises:
        ValueError: the operands lie on several devices.
    """
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    placed = {tensor.device for tensor in tensors if tensor.ndim or tensor.is_cuda}
    if len(placed) > 1:
        raise ValueError(f"the operands lie on several devices: {', '.join(sorted(map(str, placed)))}")
    return placed.pop() if placed else torch.device("cpu")


def read_count(sums: torch.Tensor) -> int:
    """Wait for the last of the sums that a kernel has made. A call that needs it has no plan that could be replayed."""
    return int(sums.select(0, -1).item())
