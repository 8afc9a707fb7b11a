"""Greatest and smallest elements: amax, amin, aminmax, max, min, and where they are.

NaN counts as the greatest and as the smallest: one in a row is its result, the first one its index. Of equal elements
the first wins. Traffic: ``numel * itemsize`` bytes read, one value and one index per row written; split as sums are,
see :mod:`reductions`.

Suffixes: ``_M`` kept, ``_T`` columns of a tile, ``_S`` splits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.indexing import converted, normalized_dims
from ..common.launch import compute_dtype, compute_type, launch, loop_bound, pdl_prologue, require_served
from ..common.matrix import (
    TILE,
    Matrix,
    Tiling,
    column_offsets,
    matrix_of,
    row_offsets,
    row_strides,
    tile_columns,
    tile_rows,
    tiling,
)
from ..pointwise.basic import maximum_of, minimum_of
from .reductions import Fold, fold, keep, require_few_dims, split_matrix

# ---------------------------------------------------------------- values alone


@triton.jit
def is_nan(x: tl.tensor) -> tl.tensor:
    """Whether ``x`` is NaN, the only value that differs from itself."""
    return x != x  # noqa: PLR0124


@triton.jit
def greatest_or_nan(x_MT: tl.tensor) -> tl.tensor:
    """The row maximum; NaN if there is one."""
    if x_MT.dtype.is_floating():
        greatest_M = tl.max(tl.where(is_nan(x_MT), float("-inf"), x_MT), axis=1)
        has_nan_M = tl.max(is_nan(x_MT).to(tl.int32), axis=1) != 0
        result = tl.where(has_nan_M, float("nan"), greatest_M)
    else:
        result = tl.max(x_MT, axis=1)
    return result.to(x_MT.dtype)


@triton.jit
def smallest_or_nan(x_MT: tl.tensor) -> tl.tensor:
    """The smallest of a row; NaN if there is one."""
    if x_MT.dtype.is_floating():
        smallest_M = tl.min(tl.where(is_nan(x_MT), float("inf"), x_MT), axis=1)
        has_nan_M = tl.max(is_nan(x_MT).to(tl.int32), axis=1) != 0
        result = tl.where(has_nan_M, float("nan"), smallest_M)
    else:
        result = tl.min(x_MT, axis=1)
    return result.to(x_MT.dtype)


def amax(self: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> torch.Tensor:
    """The greatest element over ``dim`` (empty: all)."""
    return _extreme_value(self, dim, keepdim, greatest=True)


def amin(self: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> torch.Tensor:
    """The smallest element over ``dim`` (empty: all)."""
    return _extreme_value(self, dim, keepdim, greatest=False)


def max_default(self: torch.Tensor) -> torch.Tensor:
    """The greatest of all elements."""
    return _extreme_value(self, (), False, greatest=True)


def min_default(self: torch.Tensor) -> torch.Tensor:
    """The smallest of all elements."""
    return _extreme_value(self, (), False, greatest=False)


def _extreme_value(x: torch.Tensor, dim: Sequence[int], keepdim: bool, *, greatest: bool) -> torch.Tensor:
    require_served(x)
    dims = normalized_dims(dim, x.ndim)
    _require_elements(x, dims)
    start = worst(x.dtype, greatest=greatest)
    steps = (
        Fold(keep, maximum_of, greatest_or_nan, keep, start)
        if greatest
        else Fold(keep, minimum_of, smallest_or_nan, keep, start)
    )
    return fold(x, dims, keepdim, steps, result=x.dtype)


def worst(dtype: torch.dtype, *, greatest: bool) -> float:
    """What every value of a dtype is at least as great (or as small) as."""
    if dtype.is_floating_point:
        return -float("inf") if greatest else float("inf")
    if dtype == torch.bool:
        return 0 if greatest else 1
    limits = torch.iinfo(dtype)
    return limits.min if greatest else limits.max


def _require_elements(x: torch.Tensor, dims: set[int]) -> None:
    """Nothing has no extreme.

    Raises:
        IndexError: a reduced dimension is empty.
    """
    if any(x.shape[d] == 0 for d in dims if x.ndim):
        raise IndexError(f"a shape of {list(x.shape)} has no elements to compare along {sorted(dims)}")


# ---------------------------------------------------------------- both ends


@triton.jit
def ends_kernel(
    low_out_ptr: tl.tensor,
    high_out_ptr: tl.tensor,
    low_ptr: tl.tensor,
    high_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    LOWEST: tl.constexpr,
    HIGHEST: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """The smallest of ``low`` and the greatest of ``high``: first of one input, then of partial results."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    row_M = row_offsets(m, shape, x_strides)
    low_MT = tl.full([BLOCK_M, BLOCK_J * BLOCK_K], HIGHEST, COMPUTE)
    high_MT = tl.full([BLOCK_M, BLOCK_J * BLOCK_K], LOWEST, COMPUTE)
    for step in range(steps):
        j, k = tile_columns(split * steps + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        offset_MT = row_M[:, None] + column_offsets(j, k, shape, x_strides)[None, :]
        x_MT = tl.load(low_ptr + offset_MT, mask=inside, other=0).to(COMPUTE)
        y_MT = tl.load(high_ptr + offset_MT, mask=inside, other=0).to(COMPUTE)
        low_MT = minimum_of(low_MT, tl.where(inside, x_MT, HIGHEST).to(COMPUTE))
        high_MT = maximum_of(high_MT, tl.where(inside, y_MT, LOWEST).to(COMPUTE))
    out_M = split.to(INDEX) * sizes[0] + row_offsets(m, shape, out_strides)
    tl.store(low_out_ptr + out_M, converted(smallest_or_nan(low_MT), low_out_ptr.dtype.element_ty), mask=m < sizes[0])
    tl.store(
        high_out_ptr + out_M, converted(greatest_or_nan(high_MT), high_out_ptr.dtype.element_ty), mask=m < sizes[0]
    )


def aminmax(self: torch.Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest and the greatest element along ``dim``; of all for None, where only a CPU keeps dimensions."""
    require_served(self)
    dims = normalized_dims(dim, self.ndim)
    _require_elements(self, dims)
    matrix, low = _rows(self, dims, keepdim and not (dim is None and self.is_cuda), self.dtype)
    high = torch.empty_like(low)
    if not low.numel():
        return low, high
    splits = tiling(matrix, self.device).splits
    if splits == 1:
        _launch_ends(low, high, self, self, matrix)
    else:
        shape = (splits, matrix.sizes[0])
        lows, highs = (torch.empty(shape, dtype=compute_dtype(self.dtype), device=self.device) for _ in range(2))
        first, second = split_matrix(matrix, splits)
        _launch_ends(lows, highs, self, self, first)
        _launch_ends(low, high, lows, highs, second, split=False)
    return low, high


def _rows(
    x: torch.Tensor, dims: set[int], keepdim: bool, result: torch.dtype, *, ordered: bool = False
) -> tuple[Matrix, torch.Tensor]:
    """The matrix of a reduction over ``dims`` and its row-major output."""
    require_few_dims(x)
    full_shape = tuple(1 if d in dims else size for d, size in enumerate(x.shape))
    shape = full_shape if keepdim else [size for d, size in enumerate(x.shape) if d not in dims]
    out = torch.empty(shape, dtype=result, device=x.device)
    return matrix_of(x.shape, [x.stride(), row_strides(x.shape, dims)], dims, ordered=ordered), out


def _launch_ends(
    low_out: torch.Tensor,
    high_out: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    matrix: Matrix,
    *,
    split: bool = True,
) -> None:
    tiles = tiling(matrix, low.device, split=split)
    launch(
        ends_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits),
        low.device,
        low_out,
        high_out,
        low,
        high,
        matrix.shape,
        matrix.strides(0),
        matrix.strides(1),
        matrix.sizes,
        loop_bound(tiles.steps),
        LOWEST=worst(low.dtype, greatest=True),
        HIGHEST=worst(low.dtype, greatest=False),
        COMPUTE=compute_type(low.dtype),
        INDEX=matrix.index,
        **tiles.blocks(),
    )


# ---------------------------------------------------------------- values and indices


@triton.jit
def beats(x: tl.tensor, best: tl.tensor, at: tl.tensor, GREATEST: tl.constexpr) -> tl.tensor:
    """Whether ``x`` takes the place of ``best``, which was met before it, at ``at``: of equals the first one stays."""
    not_worse = (x <= best) if GREATEST else (x >= best)
    # No comparison with NaN holds, so that the first NaN beats every number, and nothing beats it.
    return (~not_worse & ~is_nan(best)) | (at < 0)


@triton.jit
def place_kernel(
    value_ptr: tl.tensor,
    index_ptr: tl.tensor,
    x_ptr: tl.tensor,
    x_index_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    GREATEST: tl.constexpr,
    WORST: tl.constexpr,
    COMPUTE: tl.constexpr,
    UNROLL: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """The extreme of every row and its index: that of its column, or the one that ``x_index`` holds for it.

    Of equal elements the one of the lowest index stays: each lane meets its elements in the order of their indices. One
    that has met nothing yet holds an index of -1.
    """
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    row_M = row_offsets(m, shape, x_strides)
    best_MT = tl.full([BLOCK_M, BLOCK_J * BLOCK_K], WORST, COMPUTE)
    PLACE: tl.constexpr = INDEX if x_index_ptr is None else tl.int64
    at_MT = tl.full([BLOCK_M, BLOCK_J * BLOCK_K], -1, PLACE)
    for step in tl.range(steps, loop_unroll_factor=UNROLL):
        j, k = tile_columns(split * steps + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        offset_MT = row_M[:, None] + column_offsets(j, k, shape, x_strides)[None, :]
        x_MT = tl.load(x_ptr + offset_MT, mask=inside, other=0).to(COMPUTE)
        if x_index_ptr is None:
            index_MT = (j * sizes[2] + k)[None, :]
        else:
            index_MT = tl.load(x_index_ptr + offset_MT, mask=inside, other=0)
        wins = inside & beats(x_MT, best_MT, at_MT, GREATEST)
        best_MT = tl.where(wins, x_MT, best_MT)
        at_MT = tl.where(wins, index_MT, at_MT)
    best_M = greatest_or_nan(best_MT) if GREATEST else smallest_or_nan(best_MT)
    is_best = (best_MT == best_M[:, None]) | (is_nan(best_MT) & is_nan(best_M)[:, None])
    # Seen without a sign, an index of -1 is the greatest of all.
    UNSIGNED: tl.constexpr = tl.uint32 if tl.int32 == PLACE else tl.uint64
    at_M = tl.min(tl.where(is_best, at_MT, -1).to(UNSIGNED), axis=1).to(tl.int64)
    out_M = split.to(INDEX) * sizes[0] + row_offsets(m, shape, out_strides)
    if value_ptr is not None:
        tl.store(value_ptr + out_M, converted(best_M, value_ptr.dtype.element_ty), mask=m < sizes[0])
    tl.store(index_ptr + out_M, at_M, mask=m < sizes[0])


#: Where neighbours belong to several rows: elements of a tile, and steps whose loads are on their way together. A tile
#: has few columns, since three reductions across its threads follow the last step.
PLACE_TILE = 512
PLACE_UNROLL = 7


def place_tiling(matrix: Matrix, device: torch.device, *, split: bool = True) -> Tiling:
    """The tiles of :func:`place_kernel`."""
    return tiling(matrix, device, tile=PLACE_TILE if matrix.rows_are_faster else TILE, split=split)


def max_dim(self: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest element along ``dim`` and its index."""
    return _extreme_place(self, dim, keepdim, greatest=True)


def min_dim(self: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest element along ``dim`` and its index."""
    return _extreme_place(self, dim, keepdim, greatest=False)


def argmax(self: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """The index of the greatest element along ``dim`` (None: in the flattened tensor)."""
    require_no_bool(self)
    return _extreme_place(self, dim, keepdim, greatest=True)[1]


def argmin(self: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> torch.Tensor:
    """The index of the smallest element along ``dim`` (None: in the flattened tensor)."""
    require_no_bool(self)
    return _extreme_place(self, dim, keepdim, greatest=False)[1]


def require_no_bool(x: torch.Tensor) -> None:
    """Refuse what eager refuses.

    Raises:
        TypeError: a bool tensor.
    """
    if x.dtype == torch.bool:
        raise TypeError("not defined for bool")


def _extreme_place(
    x: torch.Tensor, dim: int | None, keepdim: bool, *, greatest: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    require_served(x)
    dims = normalized_dims(dim, x.ndim)
    _require_elements(x, dims)
    matrix, value = _rows(x, dims, keepdim, x.dtype, ordered=True)
    index = torch.empty(value.shape, dtype=torch.int64, device=x.device)
    if not value.numel():
        return value, index
    splits = place_tiling(matrix, x.device).splits
    if splits == 1:
        _launch_place((value, index), (x, None), matrix, greatest=greatest)
    else:
        shape = (splits, matrix.sizes[0])
        values = torch.empty(shape, dtype=x.dtype, device=x.device)
        indices = torch.empty(shape, dtype=torch.int64, device=x.device)
        first, second = split_matrix(matrix, splits)
        _launch_place((values, indices), (x, None), first, greatest=greatest)
        _launch_place((value, index), (values, indices), second, greatest=greatest, split=False)
    return value, index


def _launch_place(
    outputs: tuple[torch.Tensor, torch.Tensor],
    inputs: tuple[torch.Tensor, torch.Tensor | None],
    matrix: Matrix,
    *,
    greatest: bool,
    split: bool = True,
) -> None:
    x = inputs[0]
    tiles = place_tiling(matrix, x.device, split=split)
    launch(
        place_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits),
        x.device,
        *outputs,
        *inputs,
        matrix.shape,
        matrix.strides(0),
        matrix.strides(1),
        matrix.sizes,
        loop_bound(tiles.steps),
        GREATEST=greatest,
        WORST=worst(x.dtype, greatest=greatest),
        COMPUTE=compute_type(x.dtype),
        UNROLL=PLACE_UNROLL if matrix.rows_are_faster else 1,
        INDEX=matrix.index,
        **tiles.blocks(),
    )
