"""What programs that multiply matrices share: which tile they own, what they read, and the accumulator that they keep.

Loops over steps have one at least, of which masks leave nothing where there are no terms. The accumulator of a loop
that might have none is set beside it, too, for which ptxas serializes the products of tensor cores.

Suffixes: ``_M`` rows of the left factor and of the result, ``_N`` columns of the right one, ``_K`` what is summed over.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from ..common.indexing import number
from ..common.launch import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)
#: Parts are TF32 numbers, so that nothing is cut off.
_OF_PARTS = tl.constexpr("tf32")
#: Terms of a sum that tensor cores take in float32's digits: each step of theirs cuts the sum off, and does not round.
_TERMS_OF_A_PART = tl.constexpr(128)


class Layout(NamedTuple):
    """How factors lie, and how many elements can be accessed at a time: 1, 2, 4 or 8; 1 also where Triton sees it.

    Attributes:
        M_CONTIGUOUS: a is column-major: neighbours along M are neighbours in memory.
        N_CONTIGUOUS: b is row-major.
        A_VEC: of a.
        B_VEC: of b.
        K_VEC: along K.
        C_VEC: of a row of c.
    """

    M_CONTIGUOUS: bool
    N_CONTIGUOUS: bool
    A_VEC: int
    B_VEC: int
    K_VEC: int
    C_VEC: int


class Math(NamedTuple):
    """The types of the accumulator and of what is multiplied, and how: as for :func:`multiply_add`."""

    ACCUMULATE: Any
    MULTIPLY: Any
    PRECISION: str | None


@triton.jit
def nearest_tf32(x: tl.tensor) -> tl.tensor:
    """float32 rounded to TF32: tensor cores cut the other bits off, and errors of one sign add up over layers."""
    if not _INTERPRETED:
        x = tl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    return x


@triton.jit
def parts_of_one_sign(x: tl.tensor) -> tuple[tl.tensor, ...]:
    """Two TF32 numbers that float32 is the sum of, but for 2 of its 24 bits; what is not finite is both of them.

    The first is cut off, not rounded, and a tiny part of it stands for a second one of zero: so an infinity meets
    numbers of one sign in every product of parts, and stays one.
    """
    bits = x.to(tl.int32, bitcast=True)
    high = (bits & -0x2000).to(tl.float32, bitcast=True)
    is_finite = (bits & 0x7F800000) != 0x7F800000
    left = tl.where(is_finite, x, 0.0) - tl.where(is_finite, high, 0.0)
    left = tl.where(left == 0, high * 2.0**-30, left)
    # Half of the last bit that stays is added, away from zero, before the others go.
    low = ((left.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return tl.where(is_finite, high, x), tl.where(is_finite, low, x)


@triton.jit
def dot_tf32x3(
    a_MK: tl.tensor,
    a_low_MK: tl.tensor,
    b_KN: tl.tensor,
    b_low_KN: tl.tensor,
) -> tl.tensor:
    """``a @ b`` of float32 as 3xTF32 (Ootomo and Yokota, 2022): ``low @ high + high @ low + high @ high``.

    In an accumulator of its own, since tensor cores cut long sums off.
    """
    c_MN = tl.dot(a_low_MK, b_KN, input_precision=_OF_PARTS)
    c_MN = tl.dot(a_MK, b_low_KN, c_MN, input_precision=_OF_PARTS)
    return tl.dot(a_MK, b_KN, c_MN, input_precision=_OF_PARTS)


@triton.jit
def product_along_rows(a_MK: tl.tensor, b_NK: tl.tensor, PRECISION: tl.constexpr) -> tl.tensor:
    """``a @ b.T``, both of K elements a row; long sums of float32 in parts that are added, and rounded, afterwards."""
    K: tl.constexpr = a_MK.shape[1]
    if a_MK.dtype == tl.float32 and PRECISION == "tf32x3" and K > _TERMS_OF_A_PART:
        a_MPK = tl.reshape(a_MK, [a_MK.shape[0], K // _TERMS_OF_A_PART, _TERMS_OF_A_PART])
        b_NPK = tl.reshape(b_NK, [b_NK.shape[0], K // _TERMS_OF_A_PART, _TERMS_OF_A_PART])
        a_PMK, b_PKN = tl.permute(a_MPK, [1, 0, 2]), tl.permute(b_NPK, [1, 2, 0])
        c_MN = tl.sum(tl.dot(a_PMK, b_PKN, input_precision=PRECISION), axis=0)
    else:
        c_MN = tl.dot(a_MK, tl.trans(b_NK), input_precision=PRECISION)
    return c_MN


@triton.jit
def tile_origin(
    M: tl.tensor, N: tl.tensor, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, INDEX: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """First row and column of this program's tile, in grouped order (Triton's matmul tutorial).

    Programs go down GROUP rows of tiles, then one column to the right, so that those which run side by side share their
    tiles of b in L2::

        GROUP = 2      n ->
                  m    0  2  4  6
                  |    1  3  5  7
                  v    8 10 12 14
                       9 11 13 15
    """
    tiles_M, tiles_N = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group, within = tl.program_id(0) // (GROUP * tiles_N), tl.program_id(0) % (GROUP * tiles_N)
    height = tl.minimum(tiles_M - group * GROUP, GROUP)
    return (group * GROUP + within % height).to(INDEX) * BLOCK_M, (within // height).to(INDEX) * BLOCK_N


@triton.jit
def known_multiple(x: tl.tensor, OF: tl.constexpr) -> tl.tensor:
    """``x``, which OF divides: so that Triton knows it, too. By itself it only finds out whether 16 does."""
    return x // OF * OF


@triton.jit
def in_range(i: tl.tensor, size: tl.tensor, CONTIGUOUS: tl.constexpr, VEC: tl.constexpr = 1) -> tl.tensor:
    """``i``, or, where it lies beyond the ``size`` of its dimension, an index that does not.

    CONTIGUOUS: neighbours along this dimension are neighbours in memory; VEC divides its size then. Of a remainder
    Triton knows that 16 of them are where 16 divides the size; of the lesser of two it knows nothing, and reads one
    element at a time.
    """
    if CONTIGUOUS:
        i = i % known_multiple(size, VEC)
    else:
        i = tl.minimum(i, size - 1)
    return i


@triton.jit
def matrix_strides(strides_BXY: tl.tuple, X_CONTIGUOUS: tl.constexpr, VEC: tl.constexpr) -> tuple[tl.tensor, ...]:
    """Strides of a batch of matrices, of which VEC divides all but that of the dimension which is contiguous."""
    stride_X, stride_Y = strides_BXY[1], strides_BXY[2]
    if X_CONTIGUOUS:
        stride_Y = known_multiple(stride_Y, VEC)
    else:
        stride_X = known_multiple(stride_X, VEC)
    return known_multiple(strides_BXY[0], VEC), stride_X, stride_Y


@triton.jit
def multiply_add(
    a_MK: tl.tensor,
    b_KN: tl.tensor,
    c_MN: tl.tensor,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
) -> tl.tensor:
    """``c + a @ b``: on tensor cores, or, where PRECISION is None, as a plain sum of products.

    PRECISION is what ``tl.dot`` calls ``input_precision``.
    """
    if PRECISION is None:
        product_MKN = a_MK.to(c_MN.dtype)[:, :, None] * b_KN.to(c_MN.dtype)[None, :, :]
        c_MN += tl.sum(product_MKN, axis=1).to(c_MN.dtype)
    elif PRECISION == "tf32":
        c_MN = tl.dot(nearest_tf32(a_MK), nearest_tf32(b_KN), c_MN, input_precision=PRECISION)
    else:
        c_MN = tl.dot(a_MK.to(MULTIPLY), b_KN.to(MULTIPLY), c_MN, input_precision=PRECISION, out_dtype=c_MN.dtype)
    return c_MN


@triton.jit
def promoted(c_MN: tl.tensor, done_MN: tl.tensor, step: tl.tensor, STEPS: tl.constexpr) -> tuple[tl.tensor, ...]:
    """Every STEPS steps, add the accumulator of the tensor cores to ``done``, in float32, and reset it; 0 is never."""
    if STEPS:  # noqa: SIM102 - Nothing is divided by a constant of 0.
        if step % STEPS == STEPS - 1:
            done_MN += c_MN
            c_MN = tl.zeros_like(c_MN)
    return c_MN, done_MN


@triton.jit
def scaled_sum(
    c_MN: tl.tensor,
    self_ptr_MN: tl.tensor,
    mask_MN: tl.tensor,
    alpha_bits: tl.tensor,
    beta_bits: tl.tensor,
) -> tl.tensor:
    """``alpha * c + beta * self``; ``self`` may be absent."""
    c_MN = c_MN * number(alpha_bits, c_MN.dtype)
    if self_ptr_MN is not None:
        c_MN += tl.load(self_ptr_MN, mask=mask_MN, other=0).to(c_MN.dtype) * number(beta_bits, c_MN.dtype)
    return c_MN
