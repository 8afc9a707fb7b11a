"""Long rows of which each is one stretch of memory, accessed 16 bytes at a time wherever they start.

A row of odd length ends, and the next one starts, within 16 bytes, where no access of so many is possible. So a row is
cut into a body from the first multiple of 16 bytes on, whose size is a multiple as well, and its edges: the few
elements before and behind, which one small tile holds. Whole tiles of the body need no mask, and their elements are
at constant distances, so that no address is computed for each; a mask ends the last one after whole 16 bytes.

Suffixes: ``_E`` lanes of the edges, ``_D`` one entry per dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .launch import loop_bound, multiprocessors
from .matrix import Matrix

#: Elements of a tile, by 16 warps of 16 elements a thread: with 64 registers a thread two programs find room, of which
#: one computes while the other waits for memory.
BLOCK = 1 << 13

# ---------------------------------------------------------------- in a kernel


@triton.jit
def aligned(offset: tl.tensor, VECTOR: tl.constexpr) -> tl.tensor:
    """The offset, of which the compiler learns that it is a multiple of VECTOR."""
    return offset // VECTOR * VECTOR


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


# ---------------------------------------------------------------- the host side


class Stretches(NamedTuple):
    """How rows are cut.

    Attributes:
        length: of a row.
        steps: whole tiles that every row's body has at least; no more than one is left over.
        together: whether rows start within 16 bytes at the same place in all tensors.
        vector: elements that an access of 16 bytes has, of the smallest type.
    """

    length: int
    steps: int
    together: bool
    vector: int

    def sizes(self) -> tuple[int, Any]:
        """The run-time arguments."""
        return self.length, loop_bound(self.steps)

    def tile(self) -> dict[str, Any]:
        """The compile-time arguments and options of a launch."""
        return {"TOGETHER": self.together, "VECTOR": self.vector, "BLOCK": BLOCK, "num_warps": 16, "maxnreg": 64}


def are_stretches(matrix: Matrix, device: torch.device) -> bool:
    """Whether each row is one stretch of memory in every operand, and there are enough for a program each."""
    M, J, _ = matrix.sizes
    dense = all(strides_D == (1,) for strides_D in matrix.inner.strides_ID)
    return J == 1 and dense and 2 * multiprocessors(device) <= M


def stretches_of(matrix: Matrix, tensors: Sequence[torch.Tensor]) -> Stretches:
    """The cut of the rows of ``matrix``, whose operands are ``tensors``."""
    vector = 16 // min(tensor.dtype.itemsize for tensor in tensors)
    length = matrix.sizes[2]
    together = len(set(matrix.rows.strides_ID)) == 1
    return Stretches(length, max(length - vector + 1, 0) // BLOCK, together, vector)
