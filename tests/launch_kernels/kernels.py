"""Kernels that are launched as Triton's are, on the CPU: see :mod:`tests.launch_stand_in`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from tests.launch_stand_in import Kernel, memory
from torch import Tensor

from opsmith.kernels.random.philox import halves

#: Each run of a host function, by name.
ran: list[str] = []


@Kernel
def add_kernel(grid: Any, out: int, x: int, y: int, last: int, alpha: float) -> None:
    """``out = x + alpha * y`` up to the last element, two programs for each."""
    count = last + 1
    assert (count, 2) == tuple(grid)[:2]
    memory(out, count)[:] = memory(x, count) + alpha * memory(y, count)


@Kernel
def shift_kernel(grid: Any, out: int, x: int, count: int, number: float) -> None:
    """``out = x + number``."""
    memory(out, count)[:] = memory(x, count) + number


@Kernel
def mul_kernel(grid: Any, out: int, x: int, y: int, count: int) -> None:
    """``out = x * y``."""
    memory(out, count)[:] = memory(x, count) * memory(y, count)


@Kernel
def scale_kernel(grid: Any, out: int, x: int, count: int, factor: float) -> None:
    """``out = factor * x``."""
    memory(out, count)[:] = factor * memory(x, count)


@Kernel
def fill_kernel(grid: Any, out: int, count: int, value: float) -> None:
    """``out = value``."""
    memory(out, count)[:] = value


@Kernel
def scale_list_kernel(grid: Any, factor: float, *places: int) -> None:
    """``out = factor * x`` of so many tensors, of which come the results, then what is read, then the sizes."""
    count = grid[0]
    for out, x, numel in zip(*(places[n * count : (n + 1) * count] for n in range(3)), strict=True):
        memory(out, numel)[:] = factor * memory(x, numel)


@Kernel
def add_list_kernel(grid: Any, *places: int) -> None:
    """``x += y`` of so many tensors."""
    count = grid[0]
    for x, y, numel in zip(*(places[n * count : (n + 1) * count] for n in range(3)), strict=True):
        memory(x, numel)[:] += memory(y, numel)


@Kernel
def draw_kernel(  # noqa: PLR0917 - by these names
    grid: Any, out: int, numel: int, seed_low: int, seed_high: int, count_low: int, count_high: int, add: float
) -> None:
    """Four numbers, which are as random as the counter."""
    memory(out, numel)[:] = [seed_low + add, seed_high, count_low, count_high]


@Kernel
def relu_kernel(grid: Any, out: int, x: int, count: int) -> None:
    """``out = max(x, 0)``."""
    memory(out, count)[:] = memory(x, count).clip(0)


@Kernel
def leaky_relu_kernel(grid: Any, out: int, x: int, count: int, slope: float) -> None:
    """``out = x`` above 0, else ``slope * x``."""
    found = memory(x, count)
    memory(out, count)[:] = found.clip(0) + slope * -(-found).clip(0)


@Kernel
def abs_kernel(grid: Any, out: int, x: int, rows: int, columns: int, *strides: int) -> None:
    """``out = |x|`` of matrices, by the strides of the result and of x."""
    for row, column in itertools.product(range(rows), range(columns)):
        to, source = (row * strides[one] + column * strides[one + 1] for one in (0, 2))
        memory(out, to + 1)[to] = abs(memory(x, source + 1)[source])


@Kernel
def copy_kernel(grid: Any, out: int, x: int, count: int) -> None:
    """``out = x``."""
    memory(out, count)[:] = memory(x, count)


@Kernel
def aminmax_kernel(grid: Any, low: int, high: int, x: int, count: int) -> None:
    """The least and the greatest value."""
    memory(low, 1)[0], memory(high, 1)[0] = memory(x, count).min(), memory(x, count).max()


@Kernel
def mm_kernel(grid: Any, out: int, x: int, y: int, size: int, digits: int) -> None:
    """``out = x @ y`` of square matrices, whose elements are rounded to so many digits."""
    factors = [memory(one, size * size).reshape(size, size).round(digits) for one in (x, y)]
    memory(out, size * size).reshape(size, size)[:] = factors[0] @ factors[1]


def add(x: Tensor, y: Tensor | float, *, alpha: float = 1) -> Tensor:
    """``x + alpha * y`` of contiguous doubles, or of a number."""
    _require(*(one for one in (x, y) if isinstance(one, Tensor)))
    out = torch.empty_like(x)
    if not isinstance(y, Tensor):
        shift_kernel[1,](out, x, x.numel(), float(alpha * y))
    elif x.numel():
        add_kernel[(x.numel(), 2)](out, x, y, x.numel() - 1, float(alpha))
    return out


def mul(x: Tensor, y: Tensor | float) -> Tensor:
    """``x * y`` of contiguous doubles, or by a number."""
    out = torch.empty(x.shape, dtype=x.dtype)
    if isinstance(y, Tensor):
        _require(x, y)
        mul_kernel[1,](out, x, y, x.numel())
    else:
        _require(x)
        scale_kernel[1,](out, x, x.numel(), float(y))
    return out


def full(
    size: Sequence[int],
    value: float,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **_: Any,
) -> Tensor:
    """Doubles of one value."""
    ran.append("full")
    out = torch.empty(size, dtype=dtype, device=device)
    if out.dtype != torch.float64:
        raise NotImplementedError
    fill_kernel[1,](out, out.numel(), float(value))
    return out


def rand(size: Sequence[int], *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    """What is drawn, and a half; of four elements."""
    ran.append("rand")
    return bernoulli_(torch.empty(size, dtype=dtype, device=device))


def bernoulli_(x: Tensor, p: float = 0.5) -> Tensor:
    """What is drawn, and ``p``."""
    generator = torch.cuda.default_generators[0]
    first, seed = generator.get_offset(), generator.initial_seed()
    generator.set_offset(first + 4)
    ran.append("bernoulli")
    draw_kernel[1,](x, 4, *halves(seed), *halves(first // 4), float(p))
    return x


def uniform_(x: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Draws twice, which no plan repeats."""
    bernoulli_(x, high - low)
    return bernoulli_(x, high - low)


def foreach_mul(tensors: Sequence[Tensor], factor: float) -> list[Tensor]:
    """``factor * x`` for each x."""
    outs = [torch.empty_like(x) for x in tensors]
    _scale(outs, tensors, factor)
    return outs


def foreach_mul_(tensors: Sequence[Tensor], factor: float) -> None:
    """As :func:`foreach_mul`, in place."""
    _scale(tensors, tensors, factor)


def _scale(outs: Sequence[Tensor], tensors: Sequence[Tensor], factor: float) -> None:
    for x in tensors:
        _require(x)
    sizes = tuple(x.numel() for x in tensors)
    scale_list_kernel[len(sizes),](float(factor), tuple(outs), tuple(tensors), sizes)


def foreach_add_(tensors: Sequence[Tensor], others: Sequence[Tensor], *, alpha: float = 1) -> None:
    """``x += y`` for each pair."""
    if alpha != 1:
        raise NotImplementedError
    for x in (*tensors, *others):
        _require(x)
    sizes = tuple(x.numel() for x in tensors)
    add_list_kernel[len(sizes),](tuple(tensors), tuple(others), sizes)


def relu(x: Tensor) -> Tensor:
    """``max(x, 0)``, in the order of x's memory."""
    ran.append("relu")
    if x.dtype != torch.float64:
        raise NotImplementedError
    out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)
    relu_kernel[1,](out, x, x.numel())
    return out


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """``x`` above 0, else ``negative_slope * x``."""
    _require(x)
    out = torch.empty_like(x)
    leaky_relu_kernel[1,](out, x, x.numel(), float(negative_slope))
    return out


def absolute(x: Tensor) -> Tensor:
    """``|x|`` of a matrix, dense."""
    if x.dtype != torch.float64 or x.ndim != 2:
        raise NotImplementedError
    out = torch.empty(x.shape, dtype=x.dtype)
    abs_kernel[1,](out, x, *x.shape, *out.stride(), *x.stride())
    return out


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Along the first dimension; the memory is allocated as bits and seen as numbers at the end."""
    if dim:
        raise NotImplementedError
    _require(*tensors)
    out = torch.empty((sum(one.shape[0] for one in tensors), *tensors[0].shape[1:]), dtype=torch.int64)
    start = 0
    for one in tensors:
        copy_kernel[1,](out.narrow(0, start, one.shape[0]), one.view(torch.int64), one.numel())
        start += one.shape[0]
    return out.view(torch.float64)


def batch_norm_impl_index(x: Tensor, *_: Any) -> tuple[Tensor | int | None, ...]:
    """A copy, which is right for no mean and no deviation, absent tensors, one that nobody writes, and a number."""
    _require(x)
    out = torch.empty_like(x)
    copy_kernel[1,](out, x, x.numel())
    return out, None, None, torch.empty((), dtype=torch.int32), 3


def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Over everything."""
    if dim is not None or keepdim:
        raise NotImplementedError
    _require(x)
    low, high = torch.empty((), dtype=x.dtype), torch.empty((), dtype=x.dtype)
    aminmax_kernel[1,](low, high, x, x.numel())
    return low, high


def mm(x: Tensor, y: Tensor) -> Tensor:
    """Of square matrices; with fewer digits where TF32 is allowed."""
    _require(x, y)
    out = torch.empty_like(x)
    digits = 1 if torch.backends.cuda.matmul.fp32_precision == "tf32" else 9
    mm_kernel[1,](out, x, y, x.shape[0], digits)
    return out


def sub(x: Tensor, y: Tensor, *, alpha: float = 1) -> Tensor:
    """Without plans: calls ops whose kernels have some."""
    return torch.add(x, torch.mul(y, -1.0), alpha=alpha)


def _require(*tensors: Tensor) -> None:
    ran.append("host")
    if any(one.dtype != torch.float64 or not one.is_contiguous() for one in tensors):
        raise NotImplementedError
    if len({one.shape for one in tensors}) > 1 and len(tensors) == 2:
        raise NotImplementedError
