"""Ops that count the true elements of a mask: nonzero, masked_select, masked_scatter, repeat_interleave.

The n-th true element goes to, or comes from, place n of a vector. Blocks of the mask are counted in one launch, the
counts are added up in a second, and in the third each block knows where its first true element belongs:
the mask is read twice.

Where the number of true elements is the size of the result, the host waits for it (:func:`.launch.read_count`), as in
eager: such a call cannot be recorded and replayed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import as_bits
from ..common.indexing import Geometry, Ints, contiguous_strides, expanded_strides, index_type, merge_dims, offset_of
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    launch,
    layout_of,
    loop_bound,
    pdl_prologue,
    read_count,
    require_served,
)
from ..copies.rearrangements import copied, fill

BLOCK = INTERPRETED_TILE if INTERPRETED else 2048


@triton.jit
def count_kernel(
    counts_ptr: tl.tensor,
    mask_ptr: tl.tensor,
    shape_D: tl.tuple,
    strides_D: tl.tuple,
    numel: tl.tensor,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``counts[p]`` = true elements of block p."""
    pdl_prologue()
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    mask = tl.load(mask_ptr + offset_of(i, shape_D, strides_D), mask=i < numel, other=0)
    tl.store(counts_ptr + tl.program_id(0), tl.sum((mask != 0).to(tl.int32), axis=0))


@triton.jit
def running_sum_kernel(
    sums_ptr: tl.tensor, x_ptr: tl.tensor, stride: tl.tensor, n: tl.tensor, steps: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """``sums[i] = x[0] + .. + x[i - 1]`` for i up to n, in one program."""
    pdl_prologue()
    total = tl.zeros([1], sums_ptr.dtype.element_ty)
    tl.store(sums_ptr + tl.arange(0, 1), total)
    for step in range(steps):
        i = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i.to(tl.int64) * stride, mask=i < n, other=0).to(sums_ptr.dtype.element_ty)
        tl.store(sums_ptr + 1 + i, total + tl.cumsum(x, axis=0), mask=i < n)
        total += tl.sum(x, axis=0)


@triton.jit
def place_kernel(
    out_ptr: tl.tensor,
    mask_ptr: tl.tensor,
    x_ptr: tl.tensor,
    firsts_ptr: tl.tensor,
    shape_D: tl.tuple,
    mask_strides_D: tl.tuple,
    x_strides_D: tl.tuple,
    coordinates_D: tl.tuple,
    limit: tl.tensor,
    numel: tl.tensor,
    COORDINATES: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Write the n-th true element, of ``x`` or its coordinates, to place n of ``out`` if that is below ``limit``.

    ``coordinates_D`` holds the sizes of the mask, last dimension first; ``out`` is a row of each coordinate.
    """
    pdl_prologue()
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    mask = tl.load(mask_ptr + offset_of(i, shape_D, mask_strides_D), mask=i < numel, other=0) != 0
    ones = mask.to(tl.int32)
    n = tl.load(firsts_ptr + tl.program_id(0)) + tl.cumsum(ones, axis=0) - ones
    taken = mask & (n < limit)
    if COORDINATES:
        rest = i
        for d in tl.static_range(len(coordinates_D)):
            row = out_ptr + (len(coordinates_D) - 1 - d) * limit
            tl.store(row + n, (rest % coordinates_D[d]).to(tl.int64), mask=taken)
            rest = rest // coordinates_D[d]
    else:
        x = tl.load(x_ptr + offset_of(i, shape_D, x_strides_D), mask=taken)
        tl.store(out_ptr + n, x, mask=taken)


@triton.jit
def masked_scatter_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    mask_ptr: tl.tensor,
    source_ptr: tl.tensor,
    firsts_ptr: tl.tensor,
    shape_D: tl.tuple,
    out_strides_D: tl.tuple,
    x_strides_D: tl.tuple,
    mask_strides_D: tl.tuple,
    limit: tl.tensor,
    numel: tl.tensor,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``out = x``, but where the mask's n-th true element is: there ``source[n]``."""
    pdl_prologue()
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    inside = i < numel
    mask = tl.load(mask_ptr + offset_of(i, shape_D, mask_strides_D), mask=inside, other=0) != 0
    ones = mask.to(tl.int32)
    n = tl.load(firsts_ptr + tl.program_id(0)) + tl.cumsum(ones, axis=0) - ones
    source = tl.load(source_ptr + n, mask=mask & (n < limit), other=0)
    x = tl.load(x_ptr + offset_of(i, shape_D, x_strides_D), mask=inside & (mask == 0), other=0)
    tl.store(out_ptr + offset_of(i, shape_D, out_strides_D), tl.where(mask, source, x), mask=inside)


@triton.jit
def repeat_kernel(
    out_ptr: tl.tensor, ends_ptr: tl.tensor, n: tl.tensor, numel: tl.tensor, steps: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """``out[p]`` = the first i whose running sum of repeats, ``ends[i]``, exceeds p: a binary search."""
    pdl_prologue()
    p = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = p < numel
    low, high = tl.zeros([BLOCK], tl.int64), tl.zeros([BLOCK], tl.int64) + n
    for _ in range(steps):
        middle = (low + high) // 2
        end = tl.load(ends_ptr + middle, mask=inside & (low < high), other=0)
        low, high = (
            tl.where((low < high) & (end <= p), middle + 1, low),
            tl.where((low < high) & (end > p), middle, high),
        )
    tl.store(out_ptr + p, low.to(out_ptr.dtype.element_ty), mask=inside)


# ---------------------------------------------------------------- counting


def row_major(shape: Ints, *strides: Ints) -> Geometry:
    """The dimensions of operands of one shape, in the order in which the elements are counted."""
    return merge_dims(shape, strides, range(len(shape) - 1, -1, -1))


def first_places(mask: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """For each block the number of true elements before it, and at the end that of all.

    Args:
        mask: any type; what is not zero is true.
        geometry: of the elements in order, the mask's strides first.
    """
    numel = geometry.numel()
    blocks = triton.cdiv(numel, BLOCK)
    counts = torch.empty(blocks, dtype=torch.int32, device=mask.device)
    launch(
        count_kernel,
        (blocks,),
        mask.device,
        counts,
        mask,
        geometry.shape_D,
        geometry.strides_ID[0],
        numel,
        INDEX=index_type(geometry),
        BLOCK=BLOCK,
    )
    return running_sum(counts, torch.int64)


def running_sum(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``0, x[0], x[0] + x[1], ..``: one more than there are elements."""
    sums = torch.empty(x.numel() + 1, dtype=dtype, device=x.device)
    block = 4096
    steps = loop_bound(triton.cdiv(x.numel(), block))
    launch(running_sum_kernel, (1,), x.device, sums, x, x.stride(0), x.numel(), steps, BLOCK=block)
    return sums


def _place(
    out: torch.Tensor, mask: torch.Tensor, x: torch.Tensor, geometry: Geometry, firsts: torch.Tensor, coordinates: Ints
) -> None:
    """Write the true elements, or with ``coordinates`` (the mask's sizes) where they are, one after another."""
    launch(
        place_kernel,
        (firsts.numel() - 1,),
        out.device,
        out,
        mask,
        x,
        firsts,
        geometry.shape_D,
        geometry.strides_ID[0],
        geometry.strides_ID[-1],
        coordinates[::-1] or (1,),
        out.shape[-1],
        geometry.numel(),
        COORDINATES=bool(coordinates),
        INDEX=index_type(geometry),
        BLOCK=BLOCK,
    )


# ---------------------------------------------------------------- the ops


def nonzero(self: torch.Tensor) -> torch.Tensor:
    """The coordinates of the elements that are not zero, a row each; as on a GPU, a column is contiguous."""
    require_served(self)
    if self.ndim == 0 or self.numel() == 0:
        return _nonzero_of_few(self)
    geometry = row_major(*layout_of(self))
    firsts = first_places(self, geometry)
    count = read_count(firsts)
    out = torch.empty((self.ndim, count), dtype=torch.int64, device=self.device)
    if count:
        _place(out, self, self, geometry, firsts, tuple(self.shape))
    return out.t()


def _nonzero_of_few(self: torch.Tensor) -> torch.Tensor:
    count = 0
    if self.numel():
        count = read_count(first_places(self, row_major((), ())))
    return torch.empty((self.ndim, count), dtype=torch.int64, device=self.device).t()


def nonzero_static(self: torch.Tensor, *, size: int, fill_value: int = -1) -> torch.Tensor:
    """As :func:`nonzero`, with exactly ``size`` rows: the first ones, or filled up with ``fill_value``."""
    require_served(self)
    if size < 0:
        raise ValueError(f"size must not be negative: {size}")
    out = torch.empty((self.ndim, size), dtype=torch.int64, device=self.device)
    fill(out, fill_value)
    if self.numel() and out.numel():
        geometry = row_major(*layout_of(self))
        _place(out, self, self, geometry, first_places(self, geometry), tuple(self.shape))
    return out.t()


def masked_select(self: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The elements where the mask is true, after broadcasting, one after another.

    Raises:
        TypeError: the mask is not bool.
        RuntimeError: the shapes do not broadcast.
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"the mask must be a bool tensor, not {mask.dtype}")
    require_served(mask)
    x = as_bits(self)
    shape = tuple(torch.broadcast_shapes(self.shape, mask.shape))
    if 0 in shape:
        return torch.empty(0, dtype=self.dtype, device=self.device)
    geometry = row_major(shape, expanded_strides(layout_of(mask), shape), expanded_strides(layout_of(x), shape))
    firsts = first_places(mask, geometry)
    out = torch.empty(read_count(firsts), dtype=self.dtype, device=self.device)
    if out.numel():
        _place(out.view(x.dtype), mask, x, geometry, firsts, ())
    return out


def masked_scatter(self: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """``self`` with the first elements of ``source`` where the mask is true, after broadcasting.

    Raises:
        TypeError: the mask is not bool, or two types.
        RuntimeError: the shapes do not broadcast.
    """
    if mask.dtype != torch.bool or source.dtype != self.dtype:
        raise TypeError(f"a {mask.dtype} mask and a source of {source.dtype} do not fit {self.dtype}")
    require_served(mask)
    x, values = as_bits(self), as_bits(source)
    values = values if values.is_contiguous() else copied(values)
    shape = tuple(torch.broadcast_shapes(self.shape, mask.shape))
    strides = contiguous_strides(shape)
    out = torch.empty(shape, dtype=self.dtype, device=self.device)
    if out.numel() == 0:
        return out
    mask_strides, x_strides = (expanded_strides(layout_of(tensor), shape) for tensor in (mask, x))
    geometry = row_major(shape, mask_strides, strides, x_strides)
    firsts = first_places(mask, geometry)
    launch(
        masked_scatter_kernel,
        (firsts.numel() - 1,),
        out.device,
        out.view(x.dtype),
        x,
        mask,
        values,
        firsts,
        geometry.shape_D,
        geometry.strides_ID[1],
        geometry.strides_ID[2],
        geometry.strides_ID[0],
        values.numel(),
        out.numel(),
        INDEX=index_type(geometry),
        BLOCK=BLOCK,
    )
    return out


def masked_scatter_backward(grad_output: torch.Tensor, mask: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """The elements of ``grad_output`` where the mask is true, one after another, then zeros, in the shape ``sizes``."""
    if mask.dtype != torch.bool:
        raise TypeError(f"the mask must be a bool tensor, not {mask.dtype}")
    require_served(mask)
    x = as_bits(grad_output)
    out = torch.empty(list(sizes), dtype=grad_output.dtype, device=grad_output.device)
    fill(out.view(x.dtype), 0)
    shape = tuple(torch.broadcast_shapes(x.shape, mask.shape))
    if out.numel() and 0 not in shape:
        geometry = row_major(shape, expanded_strides(layout_of(mask), shape), expanded_strides(layout_of(x), shape))
        _place(out.view(x.dtype).view(-1), mask, x, geometry, first_places(mask, geometry), ())
    return out


def repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    """The number i, ``repeats[i]`` times, for each i.

    Raises:
        ValueError: no vector.
        TypeError: neither int64 nor int32.
    """
    require_served(repeats)
    if repeats.ndim != 1:
        raise ValueError("repeats must be a vector")
    if repeats.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"repeats must be int64 or int32, not {repeats.dtype}")
    if repeats.numel() == 0:
        return torch.empty(0, dtype=repeats.dtype, device=repeats.device)
    ends = running_sum(repeats, torch.int64)
    size = read_count(ends) if output_size is None else output_size
    out = torch.empty(size, dtype=repeats.dtype, device=repeats.device)
    if size:
        n = repeats.numel()
        block = INTERPRETED_TILE if INTERPRETED else 1024
        steps = loop_bound(n.bit_length() + 1)
        launch(
            repeat_kernel,
            (triton.cdiv(size, block),),
            out.device,
            out,
            ends.narrow(0, 1, n),
            n,
            size,
            steps,
            BLOCK=block,
        )
    return out
