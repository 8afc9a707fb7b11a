"""Contiguous rows, accessed 16 bytes at a time wherever they start: an aligned body and peeled edges.

A row of odd length ends, and the next one starts, within 16 bytes, where no access of so many is possible. So the few
elements before the first multiple of 16 bytes, and those behind the last one, are peeled off and share one small tile::

    16 bytes:  |       |       |       |       |       |       |
    row:             [eee|bbbbbbb|bbbbbbb|bbbbbbb|bbbbbbb|ee]
                     head          body, in tiles        edge

Whole tiles of the body need no mask, and their elements are at constant distances, so that no address is computed for
each; a mask ends the last one after whole 16 bytes.

Where rows are too few to fill a device, each is divided among several programs. A part is contiguous as well, and is
cut as a row is.

Suffixes: ``_E`` lanes of the edges, ``_D`` one entry per dimension; ``_M`` short rows of a tile, ``_L`` lanes that
share one, ``_I`` elements of a lane.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.launch import loop_bound, multiprocessors
from ..common.matrix import Matrix, Tiling

#: Elements of a tile, by 16 warps of 16 elements a thread: with 64 registers a thread a multiprocessor holds two such
#: programs, of which one computes while the other waits for memory (benchmarks/results/h200/traced-rows.txt).
BLOCK = 1 << 13
#: Elements of a tile of a part of a row, by 8 warps, and how many such programs a multiprocessor holds.
PART_BLOCK, RESIDENT = 1 << 12, 4
#: Elements that a row has at least to be peeled: its edges are a small part of it then.
SHORTEST = 1 << 10
#: Elements of rows of which four fill a program of 4 warps: each warp has whole ones.
LONGEST_SHORT = 1 << 9
#: Elements of a short row that a lane has, where lanes of a warp are enough for that.
SHARE = 8

# ---------------------------------------------------------------- in a kernel


@triton.jit
def aligned(offset: tl.tensor, VECTOR: tl.constexpr) -> tl.tensor:
    """The offset, of which the compiler learns that it is a multiple of VECTOR."""
    return offset // VECTOR * VECTOR


@triton.jit
def part_of_row(length: tl.tensor) -> tl.tuple:
    """The column that this program's part of a row starts at, and the part's length; parts differ by one at most."""
    part, parts = tl.program_id(1), tl.num_programs(1)
    share, longer = length // parts, length % parts
    return part * share + tl.minimum(part, longer), share + (part < longer)


@triton.jit
def aligned_body(start: tl.tensor, length: tl.tensor, VECTOR: tl.constexpr) -> tl.tuple:
    """Of a row from offset ``start`` on: where its body starts, the body's size, its edges' columns, which there are.

    The first VECTOR lanes are before the body, the others behind it.
    """
    head = (VECTOR - start % VECTOR) % VECTOR
    body = aligned(length - head, VECTOR)
    lane = tl.arange(0, 2 * VECTOR)
    before = lane < VECTOR
    e = tl.where(before, lane, head + body + lane - VECTOR)
    return head, body, e, e < tl.where(before, head, length)


@triton.jit
def short_row_columns(BLOCK_I: tl.constexpr, BLOCK_L: tl.constexpr) -> tl.tensor:
    """The columns that each lane of a short row has, see :func:`short_rows`."""
    return tl.arange(0, BLOCK_I)[:, None] * BLOCK_L + tl.arange(0, BLOCK_L)[None, :]


# ---------------------------------------------------------------- the host side


class RowCut(NamedTuple):
    """How contiguous rows are cut.

    Attributes:
        rows: how many there are.
        parts: of a row, each of which is a program's.
        length: of a row.
        steps: whole tiles that every part's body has at least; no more than one is left over.
        same_alignment: whether rows start at the same distance from a multiple of 16 bytes in all tensors.
        vector: elements that an access of 16 bytes has, of the smallest type.
        block: elements of a tile.
    """

    rows: int
    parts: int
    length: int
    steps: int
    same_alignment: bool
    vector: int
    block: int

    def grid(self) -> tuple[int, int]:
        """The programs of a launch."""
        return self.rows, self.parts

    def sizes(self) -> tuple[int, Any]:
        """The run-time arguments."""
        return self.length, loop_bound(self.steps)

    def options(self) -> dict[str, Any]:
        """The compile-time arguments and options of a launch."""
        return {"VECTOR": self.vector, "BLOCK": self.block, "num_warps": max(self.block // 512, 1), "maxnreg": 64}

    def whole(self, warps: int) -> dict[str, Any]:
        """As :meth:`options`, where one tile of so many warps holds the body of a row."""
        block = triton.next_power_of_2(self.length // self.vector * self.vector)
        return {"SAME_ALIGNMENT": self.same_alignment, "VECTOR": self.vector, "BLOCK": block, "num_warps": warps}


def are_contiguous(matrix: Matrix) -> bool:
    """Whether each row is contiguous in every operand."""
    return matrix.sizes[1] == 1 and all(strides_D == (1,) for strides_D in matrix.inner.strides_ID)


def are_unaligned(matrix: Matrix, tiles: Tiling) -> bool:
    """Whether rows that are a tile each are contiguous and start or end at no multiple of 16 bytes."""
    return tiles.block_m == 1 and matrix.sizes[2] >= SHORTEST and _start_anywhere(matrix)


def short_rows(matrix: Matrix, tiles: Tiling) -> dict[str, Any] | None:
    """The options of a kernel over tiles of short contiguous rows that start or end at no multiple of 16 bytes.

    None for other rows. In a tile of two dimensions all lanes of a warp would share such a row, and every element would
    take part in a reduction over them. Here BLOCK_L lanes do, and each has BLOCK_I elements of it, which lie BLOCK_L
    apart.
    """
    if matrix.sizes[2] > LONGEST_SHORT or not _start_anywhere(matrix):
        return None
    lanes = min(max(tiles.block_k // SHARE, 2), tiles.block_k, 32)
    blocks = {"BLOCK_I": tiles.block_k // lanes, "BLOCK_M": tiles.block_m, "BLOCK_L": lanes}
    return blocks | {"num_warps": tiles.warps}


def _start_anywhere(matrix: Matrix) -> bool:
    """Whether rows are contiguous and 16 does not divide their length or distances.

    That is as far as the compiler knows, which tells multiples of 16 from other numbers.
    """
    numbers = (matrix.sizes[2], *itertools.chain(*matrix.rows.strides_ID))
    return are_contiguous(matrix) and any(number % 16 for number in numbers)


def cut_rows(matrix: Matrix, tensors: Sequence[torch.Tensor]) -> RowCut:
    """The cut of the rows of ``matrix``, whose operands are ``tensors``."""
    vector = 16 // min(tensor.dtype.itemsize for tensor in tensors)
    rows, _, length = matrix.sizes
    parts = parts_of(rows, length, tensors[0].device)
    block = BLOCK if parts == 1 else PART_BLOCK
    same_alignment = len(set(matrix.rows.strides_ID)) == 1
    steps = max(length // parts - vector + 1, 0) // block
    return RowCut(rows, parts, length, steps, same_alignment, vector, block)


def parts_of(rows: int, length: int, device: torch.device) -> int:
    """Programs among which each row is divided: 1 where rows alone are two programs for each multiprocessor."""
    if rows >= 2 * multiprocessors(device):
        return 1
    return min(RESIDENT * multiprocessors(device) // rows, int(triton.cdiv(length, PART_BLOCK)))
