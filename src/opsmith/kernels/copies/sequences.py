"""Tensors that follow from the positions of their elements: ranges, spaced numbers, eye, indices of triangles.

Traffic: ``numel * itemsize`` bytes written, none read. Values are computed in float64 or int64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from ..common.indexing import converted, number
from ..common.launch import INTERPRETED, INTERPRETED_TILE, launch, number_bits, pdl_prologue, require_served
from ..pointwise.arithmetic import power_of
from .filling import empty

Scalar = int | float
#: Elements that do not fill a device: each thread has few of them.
_SHORT = 1 << 17

# ---------------------------------------------------------------- the kernel


@triton.jit
def sequence_kernel(
    out_ptr: tl.tensor,
    numbers_I: tl.tuple,
    numel: tl.tensor,
    function: tl.constexpr,
    IS_TENSOR_I: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``out[i] = function(i, numbers...)`` of a contiguous tensor; a number comes as its bits or in a tensor."""
    pdl_prologue()
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    values = ()
    for i in tl.static_range(len(numbers_I)):
        if IS_TENSOR_I[i]:
            values += (tl.load(numbers_I[i] + tl.arange(0, 1)).to(COMPUTE),)  # type: ignore[assignment]
        else:
            values += (number(numbers_I[i], COMPUTE),)  # type: ignore[assignment]
    result = function(index, *values)
    tl.store(out_ptr + index, converted(result, out_ptr.dtype.element_ty), mask=index < numel)


def write_sequence(out: torch.Tensor, function: Any, numbers: Sequence[Scalar | torch.Tensor], compute: Any) -> None:
    """Write ``function`` of each position and the numbers, which enter it as ``compute``, into a contiguous ``out``."""
    require_served(out)
    numel = out.numel()
    if numel == 0:
        return
    block = 256 if numel <= _SHORT else 1024
    if INTERPRETED:
        block = min(triton.next_power_of_2(numel), INTERPRETED_TILE)
    arguments = tuple(value if isinstance(value, torch.Tensor) else number_bits(value, compute) for value in numbers)
    launch(
        sequence_kernel,
        (triton.cdiv(numel, block),),
        out.device,
        out,
        arguments,
        numel,
        function=function,
        IS_TENSOR_I=tuple(isinstance(value, torch.Tensor) for value in numbers),
        COMPUTE=compute,
        BLOCK=block,
    )


# ---------------------------------------------------------------- functions of positions


@triton.jit
def progression_of(index: tl.tensor, start: tl.tensor, step: tl.tensor) -> tl.tensor:
    """``start + index step``."""
    return start + index.to(step.dtype) * step


@triton.jit
def between_of(index: tl.tensor, start: tl.tensor, end: tl.tensor, steps: tl.tensor) -> tl.tensor:
    """The position ``index`` of ``steps`` even ones from start to end, counted from the nearer of both."""
    i = index.to(tl.float64)
    step = (end - start) / tl.maximum(steps - 1.0, 1.0)
    from_end = tl.where(steps == 1.0, start, end - step * (steps - 1.0 - i))
    return tl.where(i < tl.floor(steps * 0.5), start + step * i, from_end)


@triton.jit
def power_between_of(
    index: tl.tensor, start: tl.tensor, end: tl.tensor, steps: tl.tensor, base: tl.tensor
) -> tl.tensor:
    """``base`` to the power of :func:`between_of`."""
    exponent = between_of(index, start, end, steps)
    return power_of(exponent * 0.0 + base, exponent)


@triton.jit
def diagonal_of(index: tl.tensor, columns: tl.tensor) -> tl.tensor:
    """1 where the row is the column: at every ``columns + 1``-th place, once in each column."""
    i = index.to(columns.dtype)
    row = i // (columns + 1)
    return ((row * (columns + 1) == i) & (row < columns)).to(tl.int32)


# ---------------------------------------------------------------- the ops


def _sequence_type(values: Sequence[Scalar], dtype: torch.dtype | None) -> torch.dtype:
    """int64 where all numbers are integers, else the default float type, unless ``dtype`` says which."""
    if dtype is not None:
        return dtype
    return torch.int64 if all(isinstance(value, int) for value in values) else torch.get_default_dtype()


def arange(
    end: Scalar,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """0, 1, 2, ... below ``end``."""
    return _arange(0, end, 1, _sequence_type([end], dtype), layout, device, pin_memory)


def arange_start(
    start: Scalar,
    end: Scalar,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """``start``, ``start + 1``, ... below ``end``."""
    return _arange(start, end, 1, _sequence_type([start, end], dtype), layout, device, pin_memory)


def arange_start_step(
    start: Scalar,
    end: Scalar,
    step: Scalar = 1,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """``start``, ``start + step``, ... before ``end``."""
    return _arange(start, end, step, _sequence_type([start, end, step], dtype), layout, device, pin_memory)


def _arange(
    start: Scalar,
    end: Scalar,
    step: Scalar,
    dtype: torch.dtype,
    layout: torch.layout | None,
    device: torch.device | None,
    pin_memory: bool | None,
) -> torch.Tensor:
    """The progression; an integer one starts at and goes by integers, as eager cuts them."""
    if dtype == torch.bool or dtype.is_complex:
        raise TypeError(f"arange is not defined for {dtype}")
    if not math.isfinite(start) or not math.isfinite(end):
        raise ValueError(f"a range from {start} to {end} has no length")
    lengths = tuple(map(int, (start, end, step))) if dtype == torch.int64 else (start, end, step)
    if step == 0 or lengths[2] == 0:
        raise ValueError("the step of a range has to differ from 0")
    if (end - start) * step < 0:
        raise ValueError(f"a step of {step} does not lead from {start} to {end}")
    size = _quotient_up(lengths[1] - lengths[0], lengths[2])
    out = empty([size], dtype, layout, device, pin_memory)
    if dtype.is_floating_point:
        write_sequence(out, progression_of, [start, step], tl.float64)
    else:
        write_sequence(out, progression_of, [int(start), int(step)], tl.int64)
    return out


def _quotient_up(distance: Scalar, step: Scalar) -> int:
    """The least whole number that is not below the quotient: exact for integers."""
    if isinstance(distance, int) and isinstance(step, int):
        return max(-(-distance // step), 0)
    return max(math.ceil(distance / step), 0)


def linspace(
    start: Scalar | torch.Tensor,
    end: Scalar | torch.Tensor,
    steps: int,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """``steps`` even steps from ``start`` to ``end``; either may be a tensor without dimensions."""
    out = _unwritten_steps([start, end], steps, dtype, layout, device, pin_memory)
    write_sequence(out, between_of, [start, end, steps], tl.float64)
    return out


def logspace(
    start: Scalar | torch.Tensor,
    end: Scalar | torch.Tensor,
    steps: int,
    base: float = 10.0,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """``base`` to the powers that :func:`linspace` gives."""
    out = _unwritten_steps([start, end], steps, dtype, layout, device, pin_memory)
    write_sequence(out, power_between_of, [start, end, steps, base], tl.float64)
    return out


def _unwritten_steps(
    limits: Sequence[Scalar | torch.Tensor],
    steps: int,
    dtype: torch.dtype | None,
    layout: torch.layout | None,
    device: torch.device | None,
    pin_memory: bool | None,
) -> torch.Tensor:
    """The tensor that linspace and logspace write.

    Raises:
        ValueError: ``steps`` is negative, or a limit has dimensions.
        NotImplementedError: a limit is complex or lies on another device.
    """
    if steps < 0:
        raise ValueError(f"steps has to be 0 or more, not {steps}")
    if (dtype is not None and dtype.is_complex) or any(isinstance(limit, complex) for limit in limits):
        raise NotImplementedError("complex steps are not served")
    out = empty([steps], dtype, layout, device, pin_memory)
    for limit in limits:
        if isinstance(limit, torch.Tensor):
            if limit.ndim:
                raise ValueError("the limits have to be numbers or tensors without dimensions")
            require_served(limit)
            if limit.device != out.device:
                raise NotImplementedError("limits on another device are not served")
    return out


def eye(
    n: int,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """The identity matrix of size n."""
    return eye_m(n, n, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)


def eye_m(
    n: int,
    m: int,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Ones on the diagonal of an n x m matrix, zeros elsewhere."""
    if min(n, m) < 0:
        raise ValueError(f"a matrix of {n} x {m} does not exist")
    out = empty([n, m], dtype, layout, device, pin_memory)
    write_sequence(out, diagonal_of, [m], tl.int32 if n * m < (1 << 31) - (1 << 20) else tl.int64)
    return out
