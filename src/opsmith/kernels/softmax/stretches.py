"""Long rows of which each is one stretch of memory, accessed 16 bytes at a time wherever they start.

A row of odd length ends, and the next one starts, within 16 bytes, where no access of so many is possible. So a row is
cut into a body from the first multiple of 16 bytes on, whose size is a multiple as well, and its edges: the few
elements before and behind, which one small tile holds. Whole tiles of the body need no mask, and their elements are
at constant distances, so that no address is computed for each; a mask ends the last one after whole 16 bytes.

Where rows are too few to fill a device, each is divided among several programs. A part is a stretch of memory as well,
and is cut as a row is.

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

#: Elements of a tile, by 16 warps of 16 elements a thread: with 64 registers a thread two programs find room, of which
#: one computes while the other waits for memory.
BLOCK = 1 << 13
#: Elements of a tile of a part of a row, by 8 warps. Four such programs find room: so many parts fill a device at once.
PART_BLOCK, RESIDENT = 1 << 12, 4
#: Elements that a row has at least for its edges to be a small part of it.
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
def cut_row(start: tl.tensor, length: tl.tensor, VECTOR: tl.constexpr) -> tl.tuple:
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


class Stretches(NamedTuple):
    """How rows are cut.

    Attributes:
        rows: how many there are.
        parts: of a row, each of which is a program's.
        length: of a row.
        steps: whole tiles that every part's body has at least; no more than one is left over.
        together: whether rows start within 16 bytes at the same place in all tensors.
        vector: elements that an access of 16 bytes has, of the smallest type.
        block: elements of a tile.
    """

    rows: int
    parts: int
    length: int
    steps: int
    together: bool
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
        return {"TOGETHER": self.together, "VECTOR": self.vector, "BLOCK": block, "num_warps": warps}


def are_stretches(matrix: Matrix) -> bool:
    """Whether each row is one stretch of memory in every operand."""
    return matrix.sizes[1] == 1 and all(strides_D == (1,) for strides_D in matrix.inner.strides_ID)


def are_ragged(matrix: Matrix, tiles: Tiling) -> bool:
    """Whether rows that are a tile each are stretches of memory which start or end within 16 bytes."""
    return tiles.block_m == 1 and matrix.sizes[2] >= SHORTEST and _start_anywhere(matrix)


def short_rows(matrix: Matrix, tiles: Tiling) -> dict[str, Any] | None:
    """The options of a kernel over tiles of short rows, stretches of memory that start or end within 16 bytes.

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
    """Whether rows are stretches whose length or distances 16 does not divide.

    That is as far as the compiler knows, which tells multiples of 16 from other numbers.
    """
    numbers = (matrix.sizes[2], *itertools.chain(*matrix.rows.strides_ID))
    return are_stretches(matrix) and any(number % 16 for number in numbers)


def stretches_of(matrix: Matrix, tensors: Sequence[torch.Tensor]) -> Stretches:
    """The cut of the rows of ``matrix``, whose operands are ``tensors``."""
    vector = 16 // min(tensor.dtype.itemsize for tensor in tensors)
    rows, _, length = matrix.sizes
    parts = parts_of(rows, length, tensors[0].device)
    block = BLOCK if parts == 1 else PART_BLOCK
    together = len(set(matrix.rows.strides_ID)) == 1
    steps = max(length // parts - vector + 1, 0) // block
    return Stretches(rows, parts, length, steps, together, vector, block)


def parts_of(rows: int, length: int, device: torch.device) -> int:
    """Programs among which each row is divided: 1 where rows alone are two programs for each multiprocessor."""
    if rows >= 2 * multiprocessors(device):
        return 1
    return min(RESIDENT * multiprocessors(device) // rows, int(triton.cdiv(length, PART_BLOCK)))
