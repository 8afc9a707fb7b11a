"""3xTF32: large products of float32 on tensor cores, of factors that are split into TF32 numbers beforehand.

``x = high + low`` with two TF32 numbers, 22 of 24 bits, and ``a @ b = low @ high + high @ low + high @ high`` (Ootomo
and Yokota, 2022). A program that splits its tiles itself waits for that at every step: tensor cores read the right
factor from shared memory only, so its parts are written back there. Here a launch for each factor writes both parts to
memory, with terms side by side, as tensor cores of a Hopper GPU read four-byte numbers, and zeros up to whole tiles;
then steps do nothing but load and multiply::

    a (M, K)  --tf32_split_kernel-->  high, low (2, B, M, K)  --+
                                                                +--tf32x3_product_kernel-->  c (M, N)
    b (K, N)  --tf32_split_kernel-->  high, low (2, B, N, K)  --+

That takes 12 bytes a number and twice the factors' memory, so it is for products that use each number often.

Tensor cores cut off what their accumulators cannot hold, towards zero, where float32 rounds: of 4,096 terms of one sign
1.7e-4 was lost on an H200. So a step has an accumulator of its own, which is added to the others' sum in registers.

An infinity times the other factor's low part, a zero perhaps, would not be one any more. So splitting notes whether all
numbers are finite; where they are not, the product is made again without parts.

Suffixes: ``_M`` rows of the left factor, ``_N`` columns of the right one, ``_R`` either, ``_K`` what is summed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import converted
from ..common.launch import INTERPRETED, launch, loop_bound, pdl_prologue
from .product_tiles import dot_tf32x3, parts_of_one_sign, scaled_sum, tile_origin

#: Memory budget of a product: factors with larger parts are not split.
MOST_BYTES_OF_PARTS = 2 << 30
#: Matrices that are split at once: programs of a grid's last dimension.
MOST_MATRICES = (1 << 16) - 1
#: Numbers of a program that splits, along the rows and along the terms.
ROWS, TERMS = (16, 16) if INTERPRETED else (64, 64)


@triton.jit
def two_tf32(x: tl.tensor) -> tuple[tl.tensor, ...]:
    """The nearest TF32 number of float32, and that of what is left; nothing is left of what is not finite."""
    bits = x.to(tl.int32, bitcast=True)
    is_finite = (bits & 0x7F800000) != 0x7F800000
    # Half of the last bit that stays is added, away from zero, and the other 13 go. What would become infinite is cut.
    rounded = (bits + 0x1000) & -0x2000
    rounded = tl.where((rounded & 0x7F800000) == 0x7F800000, bits & -0x2000, rounded)
    high = tl.where(is_finite, rounded, bits).to(tl.float32, bitcast=True)
    left = (tl.where(is_finite, x, 0.0) - tl.where(is_finite, high, 0.0)).to(tl.int32, bitcast=True)
    return high, ((left + 0x1000) & -0x2000).to(tl.float32, bitcast=True), is_finite


@triton.jit
def tf32_split_kernel(
    parts_ptr: tl.tensor,
    has_nonfinite_ptr: tl.tensor,
    x_ptr: tl.tensor,
    H: tl.tensor,
    rows: tl.tensor,
    terms: tl.tensor,
    x_strides_BHRK: tl.tuple,
    parts_strides_PBR: tl.tuple,
    ROWS: tl.constexpr,
    TERMS: tl.constexpr,
) -> None:
    """Both parts of ROWS x TERMS numbers of one matrix, of which each batch has H.

    Writes 1 to ``has_nonfinite`` if one of them is not finite; without it, both parts have the number's sign, and need
    no such flag.
    """
    pdl_prologue()
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(1).to(tl.int64) * TERMS + tl.arange(0, TERMS)
    batch = tl.program_id(2).to(tl.int64)
    mask = (r < rows)[:, None] & (k < terms)[None, :]
    x_ptr += batch // H * x_strides_BHRK[0] + batch % H * x_strides_BHRK[1]
    x_RK = tl.load(x_ptr + r[:, None] * x_strides_BHRK[2] + k[None, :] * x_strides_BHRK[3], mask=mask, other=0)
    if has_nonfinite_ptr is None:
        high_RK, low_RK = parts_of_one_sign(x_RK)
    else:
        high_RK, low_RK, is_finite_RK = two_tf32(x_RK)
        odd = tl.sum(tl.sum((is_finite_RK == 0).to(tl.int32), axis=1), axis=0)
        tl.store(has_nonfinite_ptr, 1, mask=odd > 0)
    parts_ptr_RK = parts_ptr + batch * parts_strides_PBR[1] + r[:, None] * parts_strides_PBR[2] + k[None, :]
    tl.store(parts_ptr_RK, high_RK)
    tl.store(parts_ptr_RK + parts_strides_PBR[0], low_RK)


@triton.jit
def tf32x3_product_kernel(
    c_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    self_ptr: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    a_strides_PBM: tl.tuple,
    b_strides_PBN: tl.tuple,
    self_strides_BMN: tl.tuple,
    alpha_bits: tl.tensor,
    beta_bits: tl.tensor,
    steps: tl.tensor,
    INDEX: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """One tile of the row-major c of one batch, from parts in whole tiles.

    ``a_strides_PBM``, ``b_strides_PBN``: between parts, matrices, and rows or columns; terms lie side by side.
    """
    pdl_prologue()
    first_M, first_N = tile_origin(M, N, GROUP, BLOCK_M, BLOCK_N, INDEX)
    batch = tl.program_id(1).to(INDEX)
    m, n = first_M + tl.arange(0, BLOCK_M), first_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K).to(INDEX)
    a_ptr_MK = a_ptr + batch * a_strides_PBM[1] + (m[:, None] * a_strides_PBM[2] + k[None, :])
    b_ptr_KN = b_ptr + batch * b_strides_PBN[1] + (n[None, :] * b_strides_PBN[2] + k[:, None])
    c_MN = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _ in range(steps):
        a_high_MK, a_low_MK = tl.load(a_ptr_MK), tl.load(a_ptr_MK + a_strides_PBM[0])
        b_high_KN, b_low_KN = tl.load(b_ptr_KN), tl.load(b_ptr_KN + b_strides_PBN[0])
        c_MN += dot_tf32x3(a_high_MK, a_low_MK, b_high_KN, b_low_KN)
        a_ptr_MK += BLOCK_K
        b_ptr_KN += BLOCK_K
    mask = (m < M)[:, None] & (n < N)[None, :]
    if self_ptr is not None:
        self_ptr += batch * self_strides_BMN[0]
        self_ptr_MN = self_ptr + m[:, None] * self_strides_BMN[1] + n[None, :] * self_strides_BMN[2]
    else:
        self_ptr_MN = None
    c_MN = scaled_sum(c_MN, self_ptr_MN, mask, alpha_bits, beta_bits)
    c_ptr_MN = c_ptr + batch * M * N + m[:, None].to(INDEX) * N + n[None, :]
    tl.store(c_ptr_MN, converted(c_MN, c_ptr.dtype.element_ty), mask=mask)


class Parts(NamedTuple):
    """Both parts of a batch of matrices.

    Attributes:
        both: of shape (2, B, rows, K), high and low, both padded with zeros to whole tiles.
    """

    both: torch.Tensor

    @property
    def strides(self) -> tuple[int, int, int]:
        """Between parts, matrices and rows."""
        part, matrix, row, _ = self.both.stride()
        return part, matrix, row

    def high(self, batches: int) -> torch.Tensor:
        """The first parts, of shape (batches, B / batches, rows, K)."""
        _, B, rows, terms = self.both.shape
        return self.both.select(0, 0).view(batches, B // batches, rows, terms)


def parts_fit(numbers: int) -> bool:
    """Whether both parts of so many numbers are within the memory budget."""
    return 8 * numbers <= MOST_BYTES_OF_PARTS


def parts_of(x: torch.Tensor, has_nonfinite: torch.Tensor | None, rows: int, terms: int) -> Parts:
    """The parts of a factor of shape (B, H, rows, K), with B * H matrices.

    Args:
        x: the factor, in float32.
        has_nonfinite: one number that becomes 1 if the factor has one that is not finite; None for parts that need no
            flag, see :func:`~opsmith.kernels.matmul.product_tiles.parts_of_one_sign`.
        rows: what its rows are padded to a multiple of; a multiple of ROWS itself.
        terms: what its terms are padded to a multiple of.
    """
    B, H, R, K = x.shape
    terms = max(terms, TERMS)
    padded_R, padded_K = triton.cdiv(R, rows) * rows, triton.cdiv(K, terms) * terms
    parts = Parts(torch.empty((2, B * H, padded_R, padded_K), dtype=torch.float32, device=x.device))
    launch(
        tf32_split_kernel,
        (padded_R // ROWS, padded_K // TERMS, B * H),
        x.device,
        parts.both,
        has_nonfinite,
        x,
        H,
        R,
        K,
        x.stride(),
        parts.strides,
        ROWS=ROWS,
        TERMS=TERMS,
    )
    return parts


def multiply_parts(
    c: torch.Tensor,
    a: Parts,
    b: Parts,
    added: torch.Tensor | None,
    added_strides: Sequence[int],
    bits: tuple[int, int],
    *,
    tile: tuple[int, int, int],
    warps: int,
    stages: int,
    group: int,
) -> None:
    """Write ``alpha * a @ b + beta * added`` into the row-major ``c``.

    Args:
        c: of shape (B, M, N).
        a: of the left factor, whose rows are in whole tiles.
        b: of the right one, likewise.
        added: the third operand, or None.
        added_strides: of it, expanded to the shape of ``c``.
        bits: of alpha and beta.
        tile: rows, columns and terms of a step.
        warps: of a program.
        stages: of its loads.
        group: see :func:`~opsmith.kernels.matmul.product_tiles.tile_origin`.
    """
    B, M, N = c.shape
    block_m, block_n, block_k = tile
    large = max(a.both.numel(), b.both.numel(), c.numel()) >= 2**31
    launch(
        tf32x3_product_kernel,
        (triton.cdiv(M, block_m) * triton.cdiv(N, block_n), B),
        c.device,
        c,
        a.both,
        b.both,
        added,
        M,
        N,
        a.strides,
        b.strides,
        added_strides,
        *bits,
        loop_bound(a.both.shape[3] // block_k),
        INDEX=tl.int64 if large else tl.int32,
        GROUP=group,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        num_warps=warps,
        num_stages=stages,
    )
