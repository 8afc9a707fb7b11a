"""A tensor seen as a matrix, and how its matrix is cut into tiles.

Reductions, scans, softmax and norms all work along some dimensions of a tensor and repeat along the others. They see
it as ``x_MT``: a row m for each position that is kept, in which t runs over the positions that are worked along.
t counts in two parts, ``(j, k)``: k along the fastest of the dimensions, j over the rest of them. A tile of
``BLOCK_J x BLOCK_K`` columns thus needs no division to find its elements, whether it covers a part of a long row
(``BLOCK_J = 1``), or several short stretches of memory, such as the images of one channel.

Suffixes: ``_M`` rows, ``_J`` and ``_K`` the parts of the columns, ``_T`` columns of a tile, ``_S`` splits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .indexing import Geometry, Ints, contiguous_strides, index_type, merge_dims, offset_of
from .launch import INTERPRETED, INTERPRETED_TILE, multiprocessors

# ---------------------------------------------------------------- in a kernel


@triton.jit
def tile_rows(INDEX: tl.constexpr, BLOCK_M: tl.constexpr) -> tl.tensor:
    """The rows of this program."""
    return tl.program_id(0).to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M)


@triton.jit
def tile_columns(
    step: tl.tensor, sizes: tl.tuple, INDEX: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_K: tl.constexpr
) -> tl.tuple:
    """The columns ``(j_T, k_T)`` of a step; ``sizes`` is ``(M, J, K)``."""
    t = tl.arange(0, BLOCK_J * BLOCK_K)
    steps_K = tl.cdiv(sizes[2], BLOCK_K)
    j = (step // steps_K).to(INDEX) * BLOCK_J + t // BLOCK_K
    k = (step % steps_K).to(INDEX) * BLOCK_K + t % BLOCK_K
    return j, k


@triton.jit
def row_offsets(m: tl.tensor, shape: tl.tuple, strides: tl.tuple) -> tl.tensor:
    """Where the rows begin; ``shape`` and ``strides`` are those of :class:`Matrix`."""
    return offset_of(m, shape[0], strides[0])


@triton.jit
def column_offsets(j: tl.tensor, k: tl.tensor, shape: tl.tuple, strides: tl.tuple) -> tl.tensor:
    """Where the columns lie, seen from the beginning of their row."""
    return offset_of(j, shape[1], strides[1]) + k * strides[2]


# ---------------------------------------------------------------- on the host


class Matrix(NamedTuple):
    """Operands of one shape as matrices: the rows, and the two parts of the columns."""

    rows: Geometry
    outer: Geometry
    inner: Geometry

    @property
    def sizes(self) -> Ints:
        """``(M, J, K)``."""
        return self.rows.numel(), self.outer.numel(), self.inner.numel()

    @property
    def shape(self) -> tuple[Ints, Ints]:
        """The dimensions of m and of j, as :func:`row_offsets` and :func:`column_offsets` take them."""
        return self.rows.shape_D, self.outer.shape_D

    def strides(self, operand: int) -> tuple[Ints, Ints, int]:
        """An operand's strides in the dimensions of m and j, and in k."""
        return self.rows.strides_ID[operand], self.outer.strides_ID[operand], self.inner.strides_ID[operand][0]

    @property
    def index(self) -> tl.dtype:
        """The type that holds all offsets and numbers of elements."""
        return index_type(self.rows, self.outer, self.inner)

    @property
    def rows_are_faster(self) -> bool:
        """Whether neighbours in the first operand's memory belong to different rows."""
        row, column = self.rows.strides_ID[0][0], self.inner.strides_ID[0][0]
        return self.sizes[0] > 1 and row != 0 and (row < column or column == 0)


def matrix_of(
    shape: Sequence[int],
    strides_I: Sequence[Ints],
    columns: Iterable[int],
    *,
    ordered: bool = False,
    row_major: bool = False,
) -> Matrix:
    """See operands of one ``shape`` as matrices with the dimensions ``columns`` as columns.

    Rows run in the order in which the first operand lies in memory, unless ``row_major``, and so do columns, unless
    ``ordered``; then they run in row-major order. Dimensions of ``columns`` beyond the shape are left out: a 0-dim
    tensor has none.
    """

    def by_memory(dims: Iterable[int]) -> list[int]:
        # Along a stride of zero there is only one element: it comes last, where it breaks up no neighbours.
        return sorted(dims, key=lambda dim: (strides_I[0][dim] == 0, strides_I[0][dim], -dim))

    worked = sorted((dim for dim in columns if dim < len(shape)), reverse=True)
    kept = sorted(set(range(len(shape))) - set(worked), reverse=True)
    kept = kept if row_major else by_memory(kept)
    merged = merge_dims(tuple(shape), strides_I, worked if ordered else by_memory(worked))
    inner = Geometry(merged.shape_D[:1], tuple(strides_D[:1] for strides_D in merged.strides_ID))
    outer = Geometry(merged.shape_D[1:], tuple(strides_D[1:] for strides_D in merged.strides_ID))
    if not outer.shape_D:
        outer = merge_dims((), strides_I, ())
    return Matrix(merge_dims(tuple(shape), strides_I, kept), outer, inner)


def row_strides(shape: Sequence[int], columns: Iterable[int]) -> Ints:
    """Strides of a row-major tensor with one element for each row, seen in the whole ``shape``: zero along columns."""
    kept = [d for d in range(len(shape)) if d not in set(columns)]
    packed = contiguous_strides(tuple(shape[d] for d in kept))
    strides = [0] * len(shape)
    for d, stride in zip(kept, packed, strict=True):
        strides[d] = stride
    return tuple(strides)


class Tiling(NamedTuple):
    """How a matrix is cut: tiles of ``block_m x (block_j x block_k)``, ``steps`` for each split of the columns."""

    block_m: int
    block_j: int
    block_k: int
    steps: int
    splits: int
    warps: int

    def blocks(self) -> dict[str, Any]:
        """The constants of a kernel that walks over such tiles."""
        blocks = {"BLOCK_M": self.block_m, "BLOCK_J": self.block_j, "BLOCK_K": self.block_k}
        return blocks | {"num_warps": self.warps}


#: Elements of a tile that 8 warps read at once: 32 bytes a thread for 2-byte types, 64 for 4-byte types.
TILE = 4096
#: Programs of 8 warps that a multiprocessor holds.
RESIDENT = 8


def side(length: int, most: int) -> int:
    """The power of two that covers ``length``, if it is at most ``most``."""
    return min(int(triton.next_power_of_2(max(length, 1))), most)


def tiling(
    matrix: Matrix, device: torch.device, *, tile: int = TILE, split: bool = True, merged: bool = False
) -> Tiling:
    """Tiles that follow memory; columns are split where the rows alone do not fill the device.

    Args:
        matrix: what is cut; its first operand decides.
        device: what is to be filled.
        tile: elements of a tile.
        split: whether the columns may be split.
        merged: whether each program of a second launch reads the partial results of all splits of its rows. With S
            splits of T columns they outweigh its own ``T / S`` columns unless ``S^2`` is far below T.
    """
    M, J, K = matrix.sizes
    tile = INTERPRETED_TILE if INTERPRETED else tile
    # A warp reads 64 neighbours of a 2-byte type at least.
    across = side(M, 64) if matrix.rows_are_faster and not INTERPRETED else 1
    block_j, block_k = _column_block(J, K, tile // across)
    total = triton.cdiv(J, block_j) * triton.cdiv(K, block_k)
    block_m = side(M, tile // block_j // block_k)
    block_m = spread_rows(M, block_m, device, fewest=min(across, 16), others=total if split else 1)
    splits = RESIDENT * multiprocessors(device) // triton.cdiv(M, block_m) if split else 1
    if merged:
        splits = min(splits, math.isqrt(J * K // 16))
    steps = triton.cdiv(total, max(min(splits, total), 1))
    return Tiling(
        block_m, block_j, block_k, steps, triton.cdiv(total, steps) if steps else 1, _warps(block_m * block_j * block_k)
    )


def spread_rows(M: int, block_m: int, device: torch.device, *, fewest: int = 1, others: int = 1) -> int:
    """``block_m`` made smaller, down to ``fewest``, until each multiprocessor has two of the tiles.

    Args:
        M: the number of rows.
        block_m: rows of a tile.
        device: what is to be filled.
        fewest: what is not to be gone below.
        others: how many tiles there are along the columns, at most.
    """
    while not INTERPRETED and block_m > fewest and triton.cdiv(M, block_m) * others < 2 * multiprocessors(device):
        block_m //= 2
    return block_m


def _column_block(J: int, K: int, most: int) -> tuple[int, int]:
    """``BLOCK_J`` and ``BLOCK_K``, together at most ``most``, that need the fewest lanes; a step counts as 256 more.

    A tile of several stretches of memory keeps 512 elements of each, so that it does not read crumbs of many DRAM
    pages.
    """
    candidates = []
    block_k = side(K, most)
    while True:
        block_j = side(J, most // block_k)
        steps = triton.cdiv(J, block_j) * triton.cdiv(K, block_k)
        candidates.append((steps * (block_j * block_k + 256), block_j, block_k))
        if block_k <= 512:
            break
        block_k //= 2
    return min(candidates)[1:]


def _warps(elements: int) -> int:
    return int(min(max(triton.next_power_of_2(elements) // 512, 4), 32))
