"""Running sums, products, logarithms of sums of exponentials, maxima and minima along one dimension.

A program owns some rows and walks along them tile by tile: the tile is scanned in registers and joined with what
the tiles before it came to, ``numel * (itemsize in + itemsize out)`` bytes in one launch; where rows are neighbours
in memory, as along a first dimension, the tile holds 64 of them. Rows that are too few to fill a device are split.
Then a first launch joins the elements of each split but the last, and the second, which scans, begins with what
the splits before its own came to: the input is read twice.

Suffixes: ``_M`` rows, ``_T`` columns of a tile, ``_S`` splits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import converted, normalized_dims
from ..common.launch import (
    ELEMENT_TYPE,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    multiprocessors,
    pdl_prologue,
    require_served,
)
from ..common.matrix import Matrix, Tiling, matrix_of, row_offsets, tile_rows, tiling
from ..pointwise.exponentials import logaddexp_of
from ..reductions.extrema import is_nan, worst
from ..reductions.reductions import plus, product, require_few_dims, sum_dtype, times, total

# ---------------------------------------------------------------- values alone


@triton.jit
def scan_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    totals_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    join: tl.constexpr,
    across: tl.constexpr,
    along: tl.constexpr,
    START: tl.constexpr,
    READ: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """``out[m, k] = x[m, 0] join .. join x[m, k]`` over one split, which begins with the totals of those before it."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    M, K = sizes
    if totals_ptr is None:
        so_far_M = tl.full([BLOCK_M], START, COMPUTE)
    else:
        s = tl.arange(0, BLOCK_S)
        at_MS = totals_ptr + s.to(INDEX)[None, :] * M + m[:, None]
        totals_MS = tl.load(at_MS, mask=(m < M)[:, None] & (s < split)[None, :], other=START)
        so_far_M = across(totals_MS)
    x_M = x_ptr + row_offsets(m, shape, x_strides)
    out_M = out_ptr + row_offsets(m, shape, out_strides)
    t = tl.arange(0, BLOCK_K)
    for step in range(steps):
        k = (split * steps + step).to(INDEX) * BLOCK_K + t
        inside = (m < M)[:, None] & (k < K)[None, :]
        x_MT = converted(tl.load(x_M[:, None] + (k * x_strides[2])[None, :], mask=inside, other=0), READ)
        y_MT = join(so_far_M[:, None], along(x_MT.to(COMPUTE))).to(COMPUTE)
        tl.store(out_M[:, None] + (k * out_strides[2])[None, :], converted(y_MT, out_ptr.dtype.element_ty), mask=inside)
        # Only tiles that are full are followed by others.
        so_far_M = last_of(y_MT, t, BLOCK_K)


@triton.jit
def last_of(y_MT: tl.tensor, t: tl.tensor, BLOCK_K: tl.constexpr) -> tl.tensor:
    """The last element of each row of a tile."""
    return tl.sum(tl.where((t == BLOCK_K - 1)[None, :], y_MT, tl.zeros_like(y_MT)), axis=1).to(y_MT.dtype)


@triton.jit
def totals_kernel(
    totals_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    join: tl.constexpr,
    across: tl.constexpr,
    START: tl.constexpr,
    READ: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """``totals[s, m]``: the elements of a split joined. Every split but the last is full."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    x_M = x_ptr + row_offsets(m, shape, x_strides)
    joined_MT = tl.full([BLOCK_M, BLOCK_K], START, COMPUTE)
    for step in range(steps):
        k = (split * steps + step).to(INDEX) * BLOCK_K + tl.arange(0, BLOCK_K)
        x_MT = tl.load(x_M[:, None] + (k * x_strides[2])[None, :], mask=(m < sizes[0])[:, None], other=0)
        joined_MT = join(joined_MT, converted(x_MT, READ).to(COMPUTE)).to(COMPUTE)
    tl.store(totals_ptr + split.to(INDEX) * sizes[0] + m, across(joined_MT), mask=m < sizes[0])


@triton.jit
def running_sum(x_MT: tl.tensor) -> tl.tensor:
    """Along a tile."""
    return tl.cumsum(x_MT, axis=1)


@triton.jit
def running_product(x_MT: tl.tensor) -> tl.tensor:
    """Along a tile."""
    return tl.cumprod(x_MT, axis=1)


@triton.jit
def running_logaddexp(x_MT: tl.tensor) -> tl.tensor:
    """Along a tile."""
    return tl.associative_scan(x_MT, 1, logaddexp_of)


@triton.jit
def total_logaddexp(x_MT: tl.tensor) -> tl.tensor:
    """Of a row."""
    return tl.reduce(x_MT, 1, logaddexp_of)


class Scan(NamedTuple):
    """What is joined, as functions of a kernel: two values, all of a row, and all up to each one of a row."""

    join: Any
    across: Any
    along: Any

    def constants(self) -> dict[str, Any]:
        """Arguments of a kernel."""
        return self._asdict()


#: With what joins with any value to that value.
SUM = Scan(plus, total, running_sum), 0
PRODUCT = Scan(times, product, running_product), 1
LOGADDEXP = Scan(logaddexp_of, total_logaddexp, running_logaddexp), float("-inf")


class Cut(NamedTuple):
    """A scan's rows and columns, and the tiles that programs walk over.

    Attributes:
        matrix: of the input and the result.
        tiles: of which a program owns ``steps`` of each split.
    """

    matrix: Matrix
    tiles: Tiling

    @classmethod
    def of(cls, x: torch.Tensor, out: torch.Tensor, columns: set[int]) -> Cut:
        """Whole rows; splits, for which the input is read twice, where rows alone leave the device idle."""
        matrix = matrix_of(x.shape, [x.stride(), out.stride()], columns)
        tiles = tiling(matrix, x.device, split=False)
        if triton.cdiv(matrix.sizes[0], tiles.block_m) < multiprocessors(x.device):
            tiles = tiling(matrix, x.device, merged=True)
        return cls(matrix, tiles)

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.matrix.sizes[0], self.matrix.sizes[2]

    @property
    def splits(self) -> int:
        """Programs that share a row."""
        return self.tiles.splits

    @property
    def index(self) -> tl.dtype:
        """The type of offsets."""
        return self.matrix.index

    @property
    def blocks(self) -> dict[str, Any]:
        """The constants of a kernel that walks along one dimension."""
        return {"BLOCK_M": self.tiles.block_m, "BLOCK_K": self.tiles.block_k, "num_warps": self.tiles.warps}

    def grid(self, *, but_last: bool = False) -> tuple[int, int]:
        """A program for each split of some rows."""
        return triton.cdiv(self.sizes[0], self.tiles.block_m), self.splits - but_last

    def reading(self) -> tuple[Any, ...]:
        """The arguments of a kernel that reads."""
        return self.matrix.shape, self.matrix.strides(0), self.sizes, loop_bound(self.tiles.steps)

    def scanning(self) -> tuple[Any, ...]:
        """The arguments of a kernel that reads and writes."""
        strides = self.matrix.strides(0), self.matrix.strides(1)
        return self.matrix.shape, *strides, self.sizes, loop_bound(self.tiles.steps)


def _scan(x: torch.Tensor, dim: int, scan: tuple[Scan, float], result: torch.dtype) -> torch.Tensor:
    """Scan ``x``, converted to ``result``, along ``dim``: a row-major tensor."""
    require_few_dims(x)
    columns = normalized_dims(dim, x.ndim)
    out = torch.empty(x.shape, dtype=result, device=x.device)
    if not out.numel():
        return out
    cut = Cut.of(x, out, columns)
    functions, start = scan
    constants = {"START": start, "READ": ELEMENT_TYPE[result], "COMPUTE": compute_type(result), "INDEX": cut.index}
    totals = None
    if cut.splits > 1:
        totals = torch.empty((cut.splits - 1, cut.sizes[0]), dtype=compute_dtype(result), device=x.device)
        shared = {"join": functions.join, "across": functions.across, **constants, **cut.blocks}
        launch(totals_kernel, cut.grid(but_last=True), x.device, totals, x, *cut.reading(), **shared)
    launch(
        scan_kernel,
        cut.grid(),
        x.device,
        out,
        x,
        totals,
        *cut.scanning(),
        **functions.constants(),
        BLOCK_S=triton.next_power_of_2(cut.splits),
        **constants,
        **cut.blocks,
    )
    return out


def cumsum(self: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Sums of the elements up to each one; integers and bools add up as int64 unless ``dtype`` says else."""
    require_served(self)
    return _scan(self, dim, SUM, sum_dtype(self, dtype))


def cumprod(self: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Products of the elements up to each one, in the type of :func:`cumsum`."""
    require_served(self)
    return _scan(self, dim, PRODUCT, sum_dtype(self, dtype))


def logcumsumexp(self: torch.Tensor, dim: int) -> torch.Tensor:
    """Logarithms of the sums of ``exp`` of the elements up to each one."""
    require_served(self, dtypes=FLOATS)
    return _scan(self, dim, LOGADDEXP, self.dtype)


# ---------------------------------------------------------------- values and indices


@triton.jit
def greater_of(x: tl.tensor, x_at: tl.tensor, y: tl.tensor, y_at: tl.tensor) -> tl.tuple:
    """The greater value and its place; NaN is greatest, and of equals the later one wins."""
    takes = (y > x) | later_equal(x, x_at, y, y_at)
    return tl.where(takes, y, x), tl.where(takes, y_at, x_at)


@triton.jit
def smaller_of(x: tl.tensor, x_at: tl.tensor, y: tl.tensor, y_at: tl.tensor) -> tl.tuple:
    """The smaller value and its place; NaN is smallest, and of equals the later one wins."""
    takes = (y < x) | later_equal(x, x_at, y, y_at)
    return tl.where(takes, y, x), tl.where(takes, y_at, x_at)


@triton.jit
def later_equal(x: tl.tensor, x_at: tl.tensor, y: tl.tensor, y_at: tl.tensor) -> tl.tensor:
    """Whether y is the first NaN of the two, or equal to x and behind it."""
    same = (y == x) | (is_nan(y) & is_nan(x))
    return (is_nan(y) & (x == x)) | (same & (y_at > x_at))  # noqa: PLR0124 - as is_nan


@triton.jit
def greatest_of(x_MT: tl.tensor, at_MT: tl.tensor) -> tl.tuple:
    """Of a row."""
    return tl.reduce((x_MT, at_MT), 1, greater_of)


@triton.jit
def smallest_of(x_MT: tl.tensor, at_MT: tl.tensor) -> tl.tuple:
    """Of a row."""
    return tl.reduce((x_MT, at_MT), 1, smaller_of)


@triton.jit
def running_greatest(x_MT: tl.tensor, at_MT: tl.tensor) -> tl.tuple:
    """Along a tile."""
    return tl.associative_scan((x_MT, at_MT), 1, greater_of)


@triton.jit
def running_smallest(x_MT: tl.tensor, at_MT: tl.tensor) -> tl.tuple:
    """Along a tile."""
    return tl.associative_scan((x_MT, at_MT), 1, smaller_of)


GREATEST = Scan(greater_of, greatest_of, running_greatest)
SMALLEST = Scan(smaller_of, smallest_of, running_smallest)


@triton.jit
def place_scan_kernel(
    value_ptr: tl.tensor,
    index_ptr: tl.tensor,
    x_ptr: tl.tensor,
    totals_ptr: tl.tensor,
    total_at_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    join: tl.constexpr,
    across: tl.constexpr,
    along: tl.constexpr,
    START: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """As :func:`scan_kernel`, of pairs of an element and its place."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    M, K = sizes
    if totals_ptr is None:
        best_M = tl.full([BLOCK_M], START, COMPUTE)
        at_M = tl.full([BLOCK_M], -1, INDEX)
    else:
        s = tl.arange(0, BLOCK_S)
        offset_MS = s.to(INDEX)[None, :] * M + m[:, None]
        known_MS = (m < M)[:, None] & (s < split)[None, :]
        totals_MS = tl.load(totals_ptr + offset_MS, mask=known_MS, other=START)
        at_MS = tl.load(total_at_ptr + offset_MS, mask=known_MS, other=-1)
        best_M, at_M = across(totals_MS, at_MS)
    x_M = x_ptr + row_offsets(m, shape, x_strides)
    out_M = row_offsets(m, shape, out_strides)
    t = tl.arange(0, BLOCK_K)
    for step in range(steps):
        k = (split * steps + step).to(INDEX) * BLOCK_K + t
        inside = (m < M)[:, None] & (k < K)[None, :]
        x_MT = tl.load(x_M[:, None] + (k * x_strides[2])[None, :], mask=inside, other=0).to(COMPUTE)
        at_MT = tl.zeros([BLOCK_M, BLOCK_K], INDEX) + k[None, :]
        x_MT, at_MT = along(x_MT, at_MT)
        x_MT, at_MT = join(best_M[:, None], at_M[:, None], x_MT, at_MT)
        out_MT = out_M[:, None] + (k * out_strides[2])[None, :]
        tl.store(value_ptr + out_MT, converted(x_MT, value_ptr.dtype.element_ty), mask=inside)
        tl.store(index_ptr + out_MT, at_MT.to(tl.int64), mask=inside)
        best_M, at_M = last_of(x_MT, t, BLOCK_K), last_of(at_MT, t, BLOCK_K)


@triton.jit
def place_totals_kernel(
    totals_ptr: tl.tensor,
    total_at_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    join: tl.constexpr,
    across: tl.constexpr,
    START: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """As :func:`totals_kernel`, of pairs of an element and its place."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    x_M = x_ptr + row_offsets(m, shape, x_strides)
    best_MT = tl.full([BLOCK_M, BLOCK_K], START, COMPUTE)
    at_MT = tl.full([BLOCK_M, BLOCK_K], -1, INDEX)
    for step in range(steps):
        k = (split * steps + step).to(INDEX) * BLOCK_K + tl.arange(0, BLOCK_K)
        x_MT = tl.load(x_M[:, None] + (k * x_strides[2])[None, :], mask=(m < sizes[0])[:, None], other=0).to(COMPUTE)
        best_MT, at_MT = join(best_MT, at_MT, x_MT, tl.zeros([BLOCK_M, BLOCK_K], INDEX) + k[None, :])
    best_M, at_M = across(best_MT, at_MT)
    total_M = split.to(INDEX) * sizes[0] + m
    tl.store(totals_ptr + total_M, best_M, mask=m < sizes[0])
    tl.store(total_at_ptr + total_M, at_M, mask=m < sizes[0])


def cummax(self: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest of the elements up to each one, and its index; NaN is greatest, of equals the last one wins."""
    return _running_place(self, dim, greatest=True)


def cummin(self: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The smallest of the elements up to each one, and its index; NaN is smallest, of equals the last one wins."""
    return _running_place(self, dim, greatest=False)


def _running_place(x: torch.Tensor, dim: int, *, greatest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    require_served(x)
    require_few_dims(x)
    columns = normalized_dims(dim, x.ndim)
    value = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    index = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    if not value.numel():
        return value, index
    cut = Cut.of(x, value, columns)
    functions = GREATEST if greatest else SMALLEST
    constants = {"START": worst(x.dtype, greatest=greatest), "COMPUTE": compute_type(x.dtype), "INDEX": cut.index}
    totals, total_at = None, None
    if cut.splits > 1:
        kept = (cut.splits - 1, cut.sizes[0])
        totals = torch.empty(kept, dtype=compute_dtype(x.dtype), device=x.device)
        total_at = torch.empty(kept, dtype=torch.int32 if cut.index == tl.int32 else torch.int64, device=x.device)
        shared = {"join": functions.join, "across": functions.across, **constants, **cut.blocks}
        grid = cut.grid(but_last=True)
        launch(place_totals_kernel, grid, x.device, totals, total_at, x, *cut.reading(), **shared)
    launch(
        place_scan_kernel,
        cut.grid(),
        x.device,
        value,
        index,
        x,
        totals,
        total_at,
        *cut.scanning(),
        **functions.constants(),
        BLOCK_S=triton.next_power_of_2(cut.splits),
        **constants,
        **cut.blocks,
    )
    return value, index
