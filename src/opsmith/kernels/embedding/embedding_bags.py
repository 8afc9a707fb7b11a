"""Rows of a table added up bag by bag: embedding_bag and its gradients; embedding_renorm.

A bag is a stretch of the indices that begins at its offset. A program owns a bag and some columns and reads the
rows that the bag names a few at a time: ``indices * columns * itemsize`` bytes, written are ``bags * columns``.
The gradient of the table is that of an embedding whose gradient is repeated for each index of a bag, see
:mod:`.segment_sums`.

Suffixes: ``_G`` a few indices, ``_D`` columns.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, map_elements
from ..common.indexing import Geometry, converted, index_type, number
from ..common.launch import (
    INTERPRETED,
    compute_dtype,
    compute_type,
    launch,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..copies.rearrangements import copied, fill
from ..indexing.gathering import Index, require_index
from ..indexing.scattering import Combine, Places, combine
from ..pointwise.exponentials import exp2_of, log2_of
from ..reductions.extrema import is_nan
from .segment_sums import sum_rows

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
_INDICES = (torch.int64, torch.int32)
#: Rows of the table that a program reads at a time.
GROUP = 8
#: As many where bags are that long: one by one, the rows of a bag of hundreds would wait for each other.
LARGE_GROUP = 32


class Mode(enum.IntEnum):
    """Torch's numbers for what is made of a bag."""

    SUM = 0
    MEAN = 1
    MAX = 2


_SUM, _MEAN, _MAX = (tl.constexpr(int(mode)) for mode in Mode)

# ---------------------------------------------------------------- the kernels


@triton.jit
def bag_kernel(
    out_ptr: tl.tensor,
    offset2bag_ptr: tl.tensor,
    bag_size_ptr: tl.tensor,
    max_indices_ptr: tl.tensor,
    table_ptr: tl.tensor,
    indices_ptr: tl.tensor,
    offsets_ptr: tl.tensor,
    factors_ptr: tl.tensor,
    table_stride_R: tl.tensor,
    table_stride_D: tl.tensor,
    index_stride: tl.tensor,
    offset_stride: tl.tensor,
    factor_stride: tl.tensor,
    items: tl.tensor,
    offsets: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    padding: tl.tensor,
    MODE: tl.constexpr,
    NO_ROW: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """``out[b]`` = sum, mean or greatest of the rows that bag b names, but for ``padding``; how many; and which.

    Of the greatest, GROUP is 1; NO_ROW is where an empty bag has it from.
    """
    pdl_prologue()
    bag = tl.program_id(0)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    begin = tl.load(offsets_ptr + bag.to(INDEX) * offset_stride).to(INDEX)
    end = tl.zeros_like(begin) + items
    if bag + 1 < offsets:
        end = tl.load(offsets_ptr + (bag + 1).to(INDEX) * offset_stride).to(INDEX)
    result_D = tl.zeros([BLOCK_D], COMPUTE)
    sum_GD = tl.zeros([GROUP, BLOCK_D], COMPUTE)
    at_D = tl.full([BLOCK_D], NO_ROW, INDEX)
    count = tl.zeros([GROUP], tl.int32)
    g = begin + tl.arange(0, GROUP)
    row_G = tl.load(indices_ptr + g * index_stride, mask=g < end, other=0).to(INDEX)
    i = begin
    while i < end:
        # The next indices come while the rows of these are read.
        after = g + GROUP
        next_G = tl.load(indices_ptr + after * index_stride, mask=after < end, other=0).to(INDEX)
        counts_G = (g < end) & (row_G != padding) & (row_G >= 0) & (row_G < rows)
        at_GD = table_ptr + (row_G * table_stride_R)[:, None] + (d.to(INDEX) * table_stride_D)[None, :]
        x_GD = tl.load(at_GD, mask=counts_G[:, None] & (d < columns)[None, :], other=0).to(COMPUTE)
        if factors_ptr is not None:
            x_GD *= tl.load(factors_ptr + g * factor_stride, mask=g < end, other=0).to(COMPUTE)[:, None]
        if MODE == _MAX:
            x_D = tl.sum(x_GD, axis=0)
            takes_D = (tl.sum(counts_G.to(tl.int32), axis=0) > 0) & ((x_D > result_D) | (tl.sum(count, axis=0) == 0))
            result_D = tl.where(takes_D, x_D, result_D)
            at_D = tl.where(takes_D, tl.sum(row_G, axis=0).to(INDEX), at_D)
        else:
            sum_GD += x_GD
        count += counts_G.to(tl.int32)
        if offset2bag_ptr is not None:
            tl.store(offset2bag_ptr + g, (g * 0 + bag).to(offset2bag_ptr.dtype.element_ty), mask=g < end)
        g, row_G = after, next_G
        i += GROUP
    if MODE != _MAX:
        result_D = tl.sum(sum_GD, axis=0)
    total = tl.sum(count, axis=0)
    if MODE == _MEAN:
        result_D = result_D / tl.maximum(total, 1).to(COMPUTE)
    out_D = bag.to(INDEX) * columns + d
    tl.store(out_ptr + out_D, converted(result_D, out_ptr.dtype.element_ty), mask=d < columns)
    if MODE == _MAX:
        tl.store(max_indices_ptr + out_D, at_D.to(max_indices_ptr.dtype.element_ty), mask=d < columns)
    if bag_size_ptr is not None:
        tl.store(bag_size_ptr + bag, total.to(bag_size_ptr.dtype.element_ty))


@triton.jit
def factor_gradient_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    table_ptr: tl.tensor,
    indices_ptr: tl.tensor,
    offset2bag_ptr: tl.tensor,
    grad_stride_B: tl.tensor,
    grad_stride_D: tl.tensor,
    table_stride_R: tl.tensor,
    table_stride_D: tl.tensor,
    index_stride: tl.tensor,
    items: tl.tensor,
    columns: tl.tensor,
    padding: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """``out[i]`` = the gradient of the bag of index i times the row that it names; 0 for ``padding``."""
    pdl_prologue()
    g = tl.program_id(0).to(INDEX) * GROUP + tl.arange(0, GROUP)
    row_G = tl.load(indices_ptr + g * index_stride, mask=g < items, other=0).to(INDEX)
    bag_G = tl.load(offset2bag_ptr + g, mask=g < items, other=0).to(INDEX)
    counts_G = (g < items) & (row_G != padding)
    sum_GD = tl.zeros([GROUP, BLOCK_D], COMPUTE)
    first = columns * 0
    while first < columns:
        d = first + tl.arange(0, BLOCK_D)
        inside = counts_G[:, None] & (d < columns)[None, :]
        d = d.to(INDEX)
        table_GD = table_ptr + (row_G * table_stride_R)[:, None] + (d * table_stride_D)[None, :]
        grad_GD = grad_ptr + (bag_G * grad_stride_B)[:, None] + (d * grad_stride_D)[None, :]
        x_GD = tl.load(table_GD, mask=inside, other=0).to(COMPUTE)
        sum_GD += x_GD * tl.load(grad_GD, mask=inside, other=0).to(COMPUTE)
        first += BLOCK_D
    tl.store(out_ptr + g, converted(tl.sum(sum_GD, axis=1), out_ptr.dtype.element_ty), mask=g < items)


@triton.jit
def repeat_gradient_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    offset2bag_ptr: tl.tensor,
    bag_size_ptr: tl.tensor,
    factors_ptr: tl.tensor,
    grad_stride_B: tl.tensor,
    grad_stride_D: tl.tensor,
    factor_stride: tl.tensor,
    items: tl.tensor,
    columns: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """``out[i]`` = the gradient of the bag of index i, divided by the bag's size or times the index's factor."""
    pdl_prologue()
    g = tl.program_id(0).to(INDEX) * GROUP + tl.arange(0, GROUP)
    d = tl.program_id(1).to(INDEX) * BLOCK_D + tl.arange(0, BLOCK_D)
    inside = (g < items)[:, None] & (d < columns)[None, :]
    bag_G = tl.load(offset2bag_ptr + g, mask=g < items, other=0).to(INDEX)
    grad_GD = grad_ptr + (bag_G * grad_stride_B)[:, None] + (d * grad_stride_D)[None, :]
    x_GD = tl.load(grad_GD, mask=inside, other=0).to(COMPUTE)
    if bag_size_ptr is not None:
        size_G = tl.load(bag_size_ptr + bag_G, mask=g < items, other=1)
        x_GD = x_GD / tl.maximum(size_G, 1).to(COMPUTE)[:, None]
    if factors_ptr is not None:
        x_GD *= tl.load(factors_ptr + g * factor_stride, mask=g < items, other=0).to(COMPUTE)[:, None]
    tl.store(out_ptr + g[:, None] * columns + d[None, :], converted(x_GD, out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def owner_kernel(
    out_ptr: tl.tensor,
    offsets_ptr: tl.tensor,
    offset_stride: tl.tensor,
    offsets: tl.tensor,
    items: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """``out[i]`` = the bag of index i: the last one that does not begin behind it, found by bisection."""
    pdl_prologue()
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    low = tl.zeros([BLOCK], tl.int64)
    high = low + offsets
    width = offsets + 0
    while width > 0:
        middle = (low + high) // 2
        asked = (i < items) & (middle < high)
        begins = tl.load(offsets_ptr + middle * offset_stride, mask=asked, other=0) <= i
        low = tl.where(asked & begins, middle + 1, low)
        high = tl.where(asked & (begins == 0), middle, high)
        width = width // 2
    tl.store(out_ptr + i, (low - 1).to(out_ptr.dtype.element_ty), mask=i < items)


# ---------------------------------------------------------------- the host side


def _block(columns: int) -> int:
    return int(min(triton.next_power_of_2(max(columns, 1)), 4096 if INTERPRETED else 256))


def _group(length: int) -> int:
    """Rows of the table that are read at a time for bags of ``length`` indices."""
    return int(min(max(triton.next_power_of_2(max(length, 1)), GROUP), LARGE_GROUP))


def _index(*tensors: torch.Tensor) -> tl.dtype:
    return index_type(*(Geometry(tuple(tensor.shape), (tensor.stride(),)) for tensor in tensors))


def _no_row(device: torch.device) -> int:
    """The row that eager names as an empty bag's greatest."""
    return -1 if device.type == "cuda" else 0


def _bags(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    mode: int,
    factors: torch.Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
    *,
    forward_only: bool,
) -> Tensors:
    """The bags, whose each index is, how many each bag has, and where the greatest elements were.

    Of the last three each device's eager kernel returns what its own gradient needs; so is done here.
    """
    _require_bags(weight, indices, offsets, mode, factors)
    bags = offsets.shape[0] - include_last_offset
    columns = weight.shape[1]
    integer = torch.promote_types(indices.dtype, offsets.dtype)
    out = torch.empty((bags, columns), dtype=weight.dtype, device=weight.device)
    sums = mode == Mode.SUM
    bare = not weight.is_cuda and sums and padding_idx < 0 and weight.dtype != torch.float64
    bare = bare and weight.stride(1) == 1 and (factors is None or factors.stride(0) == 1)
    offset2bag = torch.empty(0 if bare else indices.shape[0], dtype=integer, device=weight.device)
    all_offsets = weight.is_cuda or (forward_only and sums)
    sizes = offsets.shape[0] if all_offsets else bags
    bag_size = torch.empty(sizes, dtype=integer, device=weight.device)
    shape = (bags, columns) if mode == Mode.MAX else (0 if weight.is_cuda else sizes,)
    max_indices = torch.empty(shape, dtype=integer, device=weight.device)
    counted = weight.is_cuda or not sums
    if bags:
        block_d = _block(columns)
        group = 1 if mode == Mode.MAX else _group(triton.cdiv(indices.shape[0], bags))
        launch(
            bag_kernel,
            (bags, max(triton.cdiv(columns, block_d), 1)),
            weight.device,
            out,
            None if bare else offset2bag,
            bag_size if counted else None,
            max_indices,
            weight,
            indices,
            offsets,
            factors,
            *weight.stride(),
            indices.stride(0),
            offsets.stride(0),
            factors.stride(0) if factors is not None else 0,
            indices.shape[0],
            offsets.shape[0],
            *weight.shape,
            padding_idx,
            MODE=mode,
            NO_ROW=_no_row(weight.device),
            COMPUTE=compute_type(weight.dtype),
            INDEX=_index(weight, out, indices),
            GROUP=group,
            BLOCK_D=block_d,
            num_warps=8 if group == LARGE_GROUP else 4,
        )
    if not counted:
        fill(bag_size, 0)
    if mode != Mode.MAX and not weight.is_cuda:
        max_indices = copied(bag_size)
    return out, offset2bag, bag_size, max_indices


def _require_bags(
    weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, mode: int, factors: torch.Tensor | None
) -> None:
    """Refuse what eager refuses.

    Raises:
        TypeError: types that are none of a table, or of indices.
        ValueError: shapes that do not match, or factors of what is not a sum.
    """
    require_served(weight, factors, dtypes=FLOATS)
    require_served(indices, offsets)
    if indices.dtype not in _INDICES or offsets.dtype not in _INDICES:
        raise TypeError(f"indices and offsets are int64 or int32, not {indices.dtype} and {offsets.dtype}")
    if weight.ndim != 2 or indices.ndim != 1 or offsets.ndim != 1:
        raise ValueError("a table has two dimensions, indices and offsets one")
    if factors is not None and (mode != Mode.SUM or factors.shape != indices.shape or factors.dtype != weight.dtype):
        raise ValueError("only a sum has factors, one of the table's type for each index")


# ---------------------------------------------------------------- the ops


def bag_op(*, forward_only: bool) -> Callable[..., Tensors]:
    """Sum, mean or greatest of the rows of ``weight`` that each bag of ``indices`` names; what the gradient needs."""

    def op(
        weight: torch.Tensor,
        indices: torch.Tensor,
        offsets: torch.Tensor,
        scale_grad_by_freq: bool = False,  # noqa: ARG001 - Of the gradient.
        mode: int = Mode.SUM,
        sparse: bool = False,  # noqa: ARG001 - As above.
        per_sample_weights: torch.Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int = -1,
    ) -> Tensors:
        options = (mode, per_sample_weights, include_last_offset, padding_idx)
        return _bags(weight, indices, offsets, *options, forward_only=forward_only)

    return op


embedding_bag, embedding_bag_forward_only = bag_op(forward_only=False), bag_op(forward_only=True)


def _owners(offset2bag: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The bag of each index: found again where the forward op has not told."""
    if offset2bag.shape == indices.shape:
        return offset2bag
    out = torch.empty(indices.shape, dtype=indices.dtype, device=indices.device)
    items = indices.shape[0]
    if items:
        arguments = (out, offsets, offsets.stride(0), offsets.shape[0], items)
        launch(owner_kernel, (triton.cdiv(items, 512),), out.device, *arguments, BLOCK=512)
    return out


def embedding_bag_backward(
    grad: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    offset2bag: torch.Tensor,
    bag_size: torch.Tensor,
    maximum_indices: torch.Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int = -1,
) -> torch.Tensor:
    """The gradient of the table.

    Raises:
        NotImplementedError: a sparse one is asked for.
    """
    if sparse:
        raise NotImplementedError("a sparse gradient is not served")
    _require_bags(grad, indices, offsets, mode, per_sample_weights)
    if mode == Mode.MAX:
        return _gradient_of_greatest(grad, bag_size, maximum_indices, num_weights)
    require_served(offset2bag, bag_size)
    owners = _owners(offset2bag, indices, offsets)
    items, columns = indices.shape[0], grad.shape[1]
    # Quotients and products are not rounded before they are added up.
    repeated = torch.empty((items, columns), dtype=compute_dtype(grad.dtype), device=grad.device)
    block_d = _block(columns)
    if repeated.numel():
        launch(
            repeat_gradient_kernel,
            (triton.cdiv(items, GROUP), triton.cdiv(columns, block_d)),
            grad.device,
            repeated,
            grad,
            owners,
            bag_size if mode == Mode.MEAN else None,
            per_sample_weights,
            *grad.stride(),
            per_sample_weights.stride(0) if per_sample_weights is not None else 0,
            items,
            columns,
            COMPUTE=compute_type(grad.dtype),
            INDEX=_index(grad, repeated),
            GROUP=GROUP,
            BLOCK_D=block_d,
        )
    out = torch.empty((num_weights, columns), dtype=grad.dtype, device=grad.device)
    sum_rows(out, repeated, indices, padding_idx, by_frequency=scale_grad_by_freq)
    return out


@triton.jit
def row_of(index: tl.tensor, size: tl.tensor, rows: tl.tensor) -> tl.tensor:
    """The row that a bag has a greatest element from; none for an empty bag."""
    return tl.where(size > 0, index, rows)


def _gradient_of_greatest(grad: torch.Tensor, bag_size: torch.Tensor, at: torch.Tensor, rows: int) -> torch.Tensor:
    """Each element of ``grad`` added to where the greatest of its bag was."""
    require_served(at, bag_size, dtypes=_INDICES)
    bags, columns = grad.shape
    out = torch.empty((rows, columns), dtype=grad.dtype, device=grad.device)
    sizes = bag_size.narrow(0, 0, bags).unsqueeze(1)
    places = map_elements(row_of, [at, sizes], [torch.int64] * 2, torch.int64, [rows])
    given = Index(places, places.stride(), rows, columns)
    combine(out, None, grad, Places(tuple(grad.shape), (0, 1), [given]), Combine.ADD)
    return out


def embedding_bag_per_sample_weights_backward(
    grad: torch.Tensor,
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    offset2bag: torch.Tensor,
    mode: int,
    padding_idx: int = -1,
) -> torch.Tensor:
    """The gradient of the factors.

    Raises:
        ValueError: of another mode than a sum.
    """
    if mode != Mode.SUM:
        raise ValueError("only a sum has factors")
    _require_bags(weight, indices, offsets, mode, None)
    require_served(grad, dtypes=FLOATS)
    owners = _owners(offset2bag, indices, offsets)
    items, columns = indices.shape[0], grad.shape[1]
    out = torch.empty(items, dtype=grad.dtype, device=grad.device)
    if items:
        launch(
            factor_gradient_kernel,
            (triton.cdiv(items, GROUP),),
            grad.device,
            out,
            grad,
            weight,
            indices,
            owners,
            *grad.stride(),
            *weight.stride(),
            indices.stride(0),
            items,
            columns,
            padding_idx,
            COMPUTE=compute_type(grad.dtype),
            INDEX=_index(grad, weight, indices),
            GROUP=GROUP,
            BLOCK_D=_block(columns),
        )
    return out


# ---------------------------------------------------------------- rows of a limited norm


@triton.jit
def renorm_kernel(
    table_ptr: tl.tensor,
    indices_ptr: tl.tensor,
    stride_R: tl.tensor,
    stride_D: tl.tensor,
    items: tl.tensor,
    columns: tl.tensor,
    limit_bits: tl.tensor,
    power_bits: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """Scale row r of the table to the norm ``limit`` if any index names it and its norm is greater."""
    pdl_prologue()
    r = tl.program_id(0).to(INDEX)
    found = tl.zeros([BLOCK], tl.int32)
    i = items * 0
    while i < items:
        at = i + tl.arange(0, BLOCK)
        found |= (tl.load(indices_ptr + at, mask=at < items, other=-1).to(INDEX) == r).to(tl.int32)
        i += BLOCK
    if tl.max(found, axis=0) > 0:
        power = number(power_bits, COMPUTE)
        limit = number(limit_bits, COMPUTE)
        greatest_D = tl.zeros([BLOCK_D], COMPUTE)
        total_D = tl.zeros([BLOCK_D], COMPUTE)
        first = columns * 0
        while first < columns:
            d = first + tl.arange(0, BLOCK_D)
            x_D = tl.load(table_ptr + r * stride_R + d.to(INDEX) * stride_D, mask=d < columns, other=0).to(COMPUTE)
            x_D = tl.abs(x_D)
            greatest_D = tl.where((x_D > greatest_D) | is_nan(x_D), x_D, greatest_D)
            raised_D = tl.where(power == 2.0, x_D * x_D, tl.where(power == 1.0, x_D, exp2_of(power * log2_of(x_D))))
            total_D += tl.where(x_D == 0.0, 0.0, raised_D)
            first += BLOCK_D
        total = tl.sum(total_D, axis=0) + tl.zeros([1], COMPUTE)
        norm = tl.where(power == 2.0, tl.sqrt(total), exp2_of(log2_of(total) / power))
        norm = tl.where(power == float("inf"), tl.max(greatest_D, axis=0), norm)
        scale = tl.where(norm > limit, limit / (norm + 1e-7), 1.0)
        first = columns * 0
        while first < columns:
            d = first + tl.arange(0, BLOCK_D)
            at_D = table_ptr + r * stride_R + d.to(INDEX) * stride_D
            x_D = tl.load(at_D, mask=d < columns, other=0).to(COMPUTE)
            tl.store(at_D, converted(x_D * scale, table_ptr.dtype.element_ty), mask=(d < columns) & (norm > limit))
            first += BLOCK_D


def embedding_renorm_(self: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float) -> torch.Tensor:
    """Scale the rows of ``self`` that ``indices`` name down to the norm ``max_norm``, in place."""
    require_index(indices, self, dtypes=_INDICES)
    require_served(self, dtypes=FLOATS)
    if self.ndim != 2:
        raise ValueError(f"a table has two dimensions, not {self.ndim}")
    names = indices if indices.is_contiguous() else copied(indices)
    compute = compute_type(self.dtype)
    if self.numel() and names.numel():
        launch(
            renorm_kernel,
            (self.shape[0],),
            self.device,
            self,
            names,
            *self.stride(),
            names.numel(),
            self.shape[1],
            number_bits(max_norm, compute),
            number_bits(norm_type, compute),
            COMPUTE=compute,
            INDEX=_index(self, names),
            BLOCK=1024,
            BLOCK_D=_block(self.shape[1]),
        )
    return self
