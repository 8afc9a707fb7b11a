"""sort, topk and what is found by sorting: kthvalue, median, mode.

Three ways:

- Few and short rows are ranked (ranking.py): an element's place is the number of those before it. One launch.
- Of a long row of which half or less is wanted, the first elements are selected digit by digit (radix_selection.py);
  what is left is ranked or merged.
- Others are merged. A row that fits a tile is sorted in registers by one program: ``2 * n * itemsize + 8 n`` bytes, one
  launch. A longer one is sorted tile by tile into runs, which are then merged in pairs, each pass over ``16 n`` bytes
  of packed keys and positions (see ordering.py). Each program of a pass writes one tile: it finds by bisection where
  its tile begins in both runs, and merges from there (O. Green, R. McColl, D. Bader, "GPU merge path", 2012).
  Every run is cut to the elements that are wanted.

64-bit types are sorted twice, by the lower and then by the upper half of their keys, which works because the sort is
stable.

Suffixes: ``_R`` one entry per row, ``_T`` per element of a tile.
"""

from __future__ import annotations

import itertools
import operator

import torch
import triton
import triton.language as tl

from ..common.indexing import merge_dims, normalized_dims
from ..common.launch import INTERPRETED, INTERPRETED_TILE, await_earlier_kernels, launch, loop_bound, require_served
from ..common.ordering import HIGH, LOW, WHOLE, merge_bitonic, sort_bitonic
from .radix_selection import select_first
from .ranking import is_ranked, rank
from .sorted_rows import LAST, Sorting, read_packed, write_sorted

#: Elements that a program sorts: eight a thread. A network of twice the size takes twice as long to compile.
TILE = 2048

# ---------------------------------------------------------------- the kernels


@triton.jit
def sort_tile_kernel(
    runs_ptr: tl.tensor,
    values_ptr: tl.tensor,
    indices_ptr: tl.tensor,
    x_ptr: tl.tensor,
    packed_ptr: tl.tensor,
    order_ptr: tl.tensor,
    shape_R: tl.tuple,
    x_strides_R: tl.tuple,
    out_strides_R: tl.tuple,
    x_stride: tl.tensor,
    out_stride: tl.tensor,
    rows: tl.tensor,
    count: tl.tensor,
    length: tl.tensor,
    keep: tl.tensor,
    run_length: tl.tensor,
    tiles: tl.tensor,
    PACKED: tl.constexpr,
    ORDERED: tl.constexpr,
    FINAL: tl.constexpr,
    VALUES: tl.constexpr,
    HALF: tl.constexpr,
    DESCENDING: tl.constexpr,
    ACROSS: tl.constexpr,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    LOG: tl.constexpr,
) -> None:
    """Sort HEIGHT rows, ``2^LOG`` elements of each; write the first ``keep`` as the result or as a run.

    PACKED: the rows are runs of an earlier pass one after another, ``length`` packed elements in all; else they are
    those of ``x``. ACROSS: rows, not elements of a row, are neighbours in memory, so they are in the tile, too.
    """
    await_earlier_kernels()
    WIDTH: tl.constexpr = 1 << LOG
    i = tl.arange(0, HEIGHT * WIDTH)
    if ACROSS:
        n_T, r_T = i // HEIGHT, i % HEIGHT
    else:
        n_T, r_T = i % WIDTH, i // WIDTH
    tile = tl.program_id(0) % tiles
    row_T = (tl.program_id(0) // tiles).to(INDEX) * HEIGHT + r_T
    position_T = tile.to(INDEX) * WIDTH + n_T
    inside_T = (row_T < rows) & (position_T < length)
    sources, layout = (packed_ptr, x_ptr, order_ptr), (shape_R, x_strides_R, x_stride, count, length)
    packed_T = read_packed(*sources, row_T, position_T, inside_T, *layout, PACKED, ORDERED, HALF, DESCENDING, INDEX)
    if ACROSS:
        packed_T = sort_bitonic(packed_T, n_T, LOG, HEIGHT)
    else:
        packed_T = sort_bitonic(packed_T, n_T, LOG, 1)
    if FINAL:
        kept_T = (row_T < rows) & (n_T < keep)
        tensors = (values_ptr, indices_ptr, x_ptr, order_ptr)
        strides = (shape_R, x_strides_R, out_strides_R, x_stride, out_stride)
        write_sorted(*tensors, packed_T, row_T, n_T.to(INDEX), *strides, count, kept_T, ORDERED, VALUES, INDEX)
    else:
        run_T = runs_ptr + (row_T * tiles + tile) * run_length + n_T
        tl.store(run_T, packed_T, mask=(row_T < rows) & (n_T < run_length))


@triton.jit
def first_of(
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    a_length: tl.tensor,
    b_length: tl.tensor,
    d: tl.tensor,
    steps: tl.tensor,
    PROBES: tl.constexpr,
) -> tl.tensor:
    """How many of the ``d`` smallest elements of two sorted runs are in the first one.

    That is the first ``m`` for which not ``a[m] < b[d - 1 - m]``; every step looks at PROBES places at once.
    """
    low, high = tl.maximum(d - b_length, 0), tl.minimum(d, a_length)
    for _ in range(steps):
        stride = tl.maximum((high - low + PROBES - 1) // PROBES, 1)
        m = low + tl.arange(0, PROBES) * stride
        asked = m < high
        a = tl.load(a_ptr + m, mask=asked, other=0)
        b = tl.load(b_ptr + (d - 1 - m), mask=asked, other=0)
        passed = tl.sum((asked & (a < b)).to(tl.int32), axis=0)
        high = tl.minimum(low + passed * stride, high)
        low = tl.where(passed > 0, low + (passed - 1) * stride + 1, low)
    return low


@triton.jit
def merge_kernel(
    out_ptr: tl.tensor,
    values_ptr: tl.tensor,
    indices_ptr: tl.tensor,
    runs_ptr: tl.tensor,
    x_ptr: tl.tensor,
    order_ptr: tl.tensor,
    shape_R: tl.tuple,
    x_strides_R: tl.tuple,
    out_strides_R: tl.tuple,
    x_stride: tl.tensor,
    out_stride: tl.tensor,
    count: tl.tensor,
    keep: tl.tensor,
    runs: tl.tensor,
    run_length: tl.tensor,
    out_runs: tl.tensor,
    out_length: tl.tensor,
    steps: tl.tensor,
    ORDERED: tl.constexpr,
    FINAL: tl.constexpr,
    VALUES: tl.constexpr,
    INDEX: tl.constexpr,
    LOG: tl.constexpr,
) -> None:
    """Merge one tile of a pair of runs, of which the second may be missing."""
    await_earlier_kernels()
    WIDTH: tl.constexpr = 1 << LOG
    tiles = tl.cdiv(out_length, WIDTH)
    tile = tl.program_id(0) % tiles
    pair = tl.program_id(0) // tiles % out_runs
    row = (tl.program_id(0) // tiles // out_runs).to(tl.int64)
    a_ptr = runs_ptr + (row * runs + 2 * pair) * run_length
    b_ptr = a_ptr + run_length
    b_length = tl.where(2 * pair + 1 < runs, run_length, 0)
    d = tile * WIDTH
    a_first = first_of(a_ptr, b_ptr, run_length, b_length, d, steps, 64)
    b_first = d - a_first
    t = tl.arange(0, WIDTH)
    a_T = tl.load(a_ptr + a_first + t, mask=a_first + t < run_length, other=LAST)
    # The other run backwards: the smaller ones of each pair are the WIDTH smallest, first rising and then falling.
    back = b_first + WIDTH - 1 - t
    b_T = tl.load(b_ptr + back, mask=back < b_length, other=LAST)
    merged_T = merge_bitonic(tl.minimum(a_T, b_T), t, LOG)
    n_T = d + t
    if FINAL:
        row_T = row.to(INDEX) + tl.zeros([WIDTH], INDEX)
        tensors = (values_ptr, indices_ptr, x_ptr, order_ptr)
        strides = (shape_R, x_strides_R, out_strides_R, x_stride, out_stride)
        write_sorted(*tensors, merged_T, row_T, n_T.to(INDEX), *strides, count, n_T < keep, ORDERED, VALUES, INDEX)
    else:
        tl.store(out_ptr + (row * out_runs + pair) * out_length + n_T, merged_T, mask=n_T < out_length)


# ---------------------------------------------------------------- the host side


def sort_rows(
    values: torch.Tensor | None, indices: torch.Tensor, x: torch.Tensor, axis: int, *, descending: bool
) -> None:
    """Write the first elements of each sorted row of ``x``, and their indices.

    Args:
        values: like ``indices``, in the type of ``x``; or None.
        indices: of the shape of ``x``, or with fewer elements along ``axis``: these are written.
        x: with at least one dimension and element.
        axis: the rows' dimension.
        descending: the greatest first.
    """
    dims = sorted((d for d in range(x.ndim) if d != axis), key=x.stride)
    shape = tuple(x.shape)
    geometry = merge_dims(shape, [x.stride(), indices.stride()], dims)
    sorting = Sorting(values, indices, x, None, geometry, axis, indices.shape[axis], WHOLE.value, descending)
    if x.dtype.itemsize < 8:
        _sort(sorting)
        return
    # A row of positions for each row, numbered as the geometry numbers them.
    order = torch.empty((sorting.rows(), shape[axis]), dtype=torch.int32, device=x.device)
    steps = dict(zip(dims, itertools.accumulate((shape[d] for d in dims), operator.mul, initial=1), strict=False))
    numbered = order.as_strided(shape, [shape[axis] * steps[d] if d != axis else 1 for d in range(x.ndim)])
    own = merge_dims(shape, [x.stride(), numbered.stride()], dims)
    _sort(Sorting(None, numbered, x, None, own, axis, shape[axis], LOW.value, descending))
    _sort(sorting._replace(order=order, half=HIGH.value))


def _sort(sorting: Sorting) -> None:
    """Write the first elements of each row, the fastest way of three: see the head of this file."""
    count, keep = sorting.length(), sorting.keep
    if is_ranked(sorting.rows(), count):
        rank(sorting, None, count)
        return
    selects = sorting.half == WHOLE.value and count > TILE and 2 * keep <= count
    # A column would be read a sector of memory for each element, again for each digit.
    if not selects or sorting.across:
        _merge_sort(sorting, None, count)
        return
    selected = select_first(sorting)
    if is_ranked(sorting.rows(), keep):
        rank(sorting, selected, keep)
    else:
        _merge_sort(sorting, selected, keep)


def _merge_sort(sorting: Sorting, selected: torch.Tensor | None, count: int) -> None:
    """Sort tiles of ``count`` elements, then merge, or sort again, until one run is left.

    Args:
        sorting: what is wanted.
        selected: packed elements, ``count`` for each row; None stands for those of ``x``.
        count: elements of a row.
    """
    keep, rows = sorting.keep, sorting.rows()
    width = min(triton.next_power_of_2(count), TILE)
    runs = triton.cdiv(count, width)
    length = min(width, keep)
    packed_runs = _sort_tiles(sorting, selected, count, width, runs, length)
    while runs > 1:
        if 2 * length <= width:  # Runs so short that a tile holds several: only topk has such.
            total, runs = runs * length, triton.cdiv(runs * length, width)
            packed_runs = _sort_tiles(sorting, packed_runs, total, width, runs, length)
            continue
        assert packed_runs is not None
        merged, merged_length = triton.cdiv(runs, 2), min(2 * length, keep)
        out = None if merged == 1 else sorting.empty_packed(merged * merged_length)
        tiles = triton.cdiv(merged_length, width)
        values, indices = sorting.outputs()
        launch(
            merge_kernel,
            (rows * merged * tiles,),
            sorting.x.device,
            packed_runs if out is None else out,
            values,
            indices,
            packed_runs,
            sorting.x,
            sorting.indices if sorting.order is None else sorting.order,
            *sorting.strides(),
            sorting.length(),
            keep,
            runs,
            length,
            merged,
            merged_length,
            # Each step leaves a 64th of the places.
            loop_bound(length.bit_length() // 6 + 2),
            ORDERED=sorting.order is not None,
            FINAL=out is None,
            VALUES=sorting.values is not None,
            INDEX=sorting.offset_type(),
            LOG=width.bit_length() - 1,
            num_warps=8 if width > 512 else 4,
        )
        packed_runs, runs, length = out, merged, merged_length


def _sort_tiles(
    sorting: Sorting, runs_before: torch.Tensor | None, length: int, width: int, tiles: int, run_length: int
) -> torch.Tensor | None:
    """Sort tiles of ``width`` of rows of ``length``: into runs, or, where one tile is a row, into the results."""
    rows = sorting.rows()
    height = min(triton.next_power_of_2(rows), max((INTERPRETED_TILE if INTERPRETED else TILE) // width, 1))
    out = None if tiles == 1 else sorting.empty_packed(tiles * run_length)
    values, indices = sorting.outputs()
    launch(
        sort_tile_kernel,
        (triton.cdiv(rows, height) * tiles,),
        sorting.x.device,
        indices if out is None else out,
        values,
        indices,
        sorting.x,
        indices if runs_before is None else runs_before,
        indices if sorting.order is None else sorting.order,
        *sorting.strides(),
        rows,
        sorting.length(),
        length,
        sorting.keep,
        run_length,
        tiles,
        PACKED=runs_before is not None,
        ORDERED=sorting.order is not None,
        FINAL=out is None,
        VALUES=sorting.values is not None,
        HALF=sorting.half,
        DESCENDING=sorting.descending,
        ACROSS=height > 1 and sorting.across,
        INDEX=sorting.offset_type(),
        HEIGHT=height,
        LOG=width.bit_length() - 1,
        num_warps=8 if height * width > 512 else 4,
    )
    return out


# ---------------------------------------------------------------- the ops


def sort(self: torch.Tensor, dim: int = -1, descending: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements along ``dim`` in order, and where they were. NaN is the greatest."""
    return _sorted(self, dim, descending)


def sort_stable(
    self: torch.Tensor,
    *,
    stable: bool | None,  # noqa: ARG001 - It always is.
    dim: int = -1,
    descending: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As :func:`sort`: equal elements stay in their order."""
    return _sorted(self, dim, descending)


def _sorted(self: torch.Tensor, dim: int, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
    (axis,) = normalized_dims(dim, self.ndim)
    require_served(self)
    values = torch.empty_like(self)
    indices = torch.empty_strided(self.shape, values.stride(), dtype=torch.int64, device=self.device)
    if self.numel():
        vector, at, where = (self, values, indices) if self.ndim else (self.view(1), values.view(1), indices.view(1))
        sort_rows(at, where, vector, axis, descending=descending)
    return values, indices


def topk(
    self: torch.Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002, ARG001 - They always are.
) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``k`` largest or smallest elements along ``dim``, in order, and where they were. NaN is the greatest.

    Raises:
        IndexError: ``dim`` out of range.
        ValueError: fewer than ``k`` elements.
    """
    (axis,) = normalized_dims(dim, self.ndim)
    require_served(self)
    size = self.shape[axis] if self.ndim else 1
    if not 0 <= k <= size:
        raise ValueError(f"there are no {k} of {size} elements")
    shape = [k if d == axis else length for d, length in enumerate(self.shape)]
    values = torch.empty(shape, dtype=self.dtype, device=self.device)
    indices = torch.empty(shape, dtype=torch.int64, device=self.device)
    if values.numel() and self.ndim:
        sort_rows(values, indices, self, axis, descending=largest)
    elif values.numel() and k:
        sort_rows(values.view(1), indices.view(1), self.view(1), 0, descending=largest)
    return values, indices
