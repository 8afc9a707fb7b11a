"""Products of factors in microscaled formats, which Hopper's tensor cores do not have: widened in registers.

::

    c[m, n] = whole * sum over k of (a[m, k] * scale_a[m, k / B]) * (b[n, k] * scale_b[n, k / B])

A factor is bfloat16 without scales, E4M3, or E2M1, two a byte; scales are E8M0, powers of two, or E4M3. A number of
E4M3 has 4 binary digits, one of E2M1 has 2, a scale of E4M3 has 4 and a power of two has one: the product of a number
and its scale has 8 at most, as many as bfloat16, and is exact. So sums are those of eager's float32 factors, made on
the tensor cores for bfloat16. Factors move through memory in their 8 or 4 bits: ``(M + N) K * bits / 8 + 2 M N`` bytes,
and the scales.

A scale widens a block of neighbours: a tile (rows, K) is seen as (rows, K / B, B) for it, and (rows, K / 2, 2) where
two numbers come out of a byte.

Suffixes: ``_M`` rows of a, ``_N`` rows of b, which are columns of c, ``_R`` rows of either, ``_K`` what is summed over.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, converted, index_type, widened
from ..common.launch import INTERPRETED, launch, layout_of, loop_bound, multiprocessors, pdl_prologue, require_served
from ..matmul.matmul import GROUP, Sizes
from ..matmul.product_tiles import tile_origin
from .formats import (
    E4M3,
    E8M0,
    PACKED,
    ROUNDED,
    SOURCES,
    as_bytes,
    from_exponent,
    from_float4,
    from_float8,
    require_low,
    scale_at,
)
from .scaled_products import FEWEST_ROWS, Tile

_INTERPRETED = tl.constexpr(INTERPRETED)
#: Two warp groups share the work of widening; a step is two blocks of scales, or four of NVFP4.
LARGE = Tile(128, 128, 64, 8, 3)
#: Of few rows: what is read is most of the work, and more of it is on the way.
FLAT = Tile(64, 64, 128, 4, 4)


class Operand(NamedTuple):
    """A factor of shape (rows, K), or (rows, K / 2) if packed, and its scales.

    Attributes:
        numbers: in bfloat16, E4M3 or packed E2M1.
        scale: (rows, K / block) in E8M0 or E4M3; None of bfloat16.
    """

    numbers: torch.Tensor
    scale: torch.Tensor | None


class Strides(NamedTuple):
    """Of rows and columns of the factors and their scales; c is contiguous."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    scale_a: tuple[int, ...]
    scale_b: tuple[int, ...]


@triton.jit
def widened_tile(
    x_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    row_R: tl.tensor,
    first: tl.tensor,
    K: tl.tensor,
    strides: tl.tuple,
    scale_strides: tl.tuple,
    TYPE: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> tl.tensor:
    """``x_RK`` in TYPE, bfloat16, BLOCK_K terms from ``first`` on, 0 beyond K; numbers given as bytes are packed."""
    PACKS: tl.constexpr = x_ptr.dtype.element_ty == tl.uint8
    EACH: tl.constexpr = 2 if PACKS else 1
    k = first // EACH + tl.arange(0, BLOCK_K // EACH)
    x_ptr_RK = x_ptr + row_R[:, None] * strides[0] + k[None, :] * strides[1]
    if PACKS:
        byte_RK = tl.load(x_ptr_RK, mask=(k < K // 2)[None, :], other=0)
        pair_RK2 = tl.join(from_float4(byte_RK & 15), from_float4(byte_RK >> 4))
        x_RK = tl.reshape(pair_RK2, [row_R.shape[0], BLOCK_K])
    else:
        x_RK = tl.load(x_ptr_RK, mask=(k < K)[None, :], other=0.0)
    if scale_ptr is not None:
        block = first // BLOCK + tl.arange(0, BLOCK_K // BLOCK)
        scale_ptr_RT = scale_ptr + row_R[:, None] * scale_strides[0] + block[None, :] * scale_strides[1]
        inside_RT = (block * BLOCK < K)[None, :]
        if scale_ptr.dtype.element_ty == tl.uint8:
            scale_RT = from_exponent(tl.load(scale_ptr_RT, mask=inside_RT, other=0))
        else:
            scale_RT = from_float8(tl.load(scale_ptr_RT, mask=inside_RT, other=0.0))
        wide_RK = x_RK if PACKS else from_float8(x_RK)
        wide_RTB = tl.reshape(wide_RK, [row_R.shape[0], BLOCK_K // BLOCK, BLOCK])
        x_RK = tl.reshape(wide_RTB * scale_RT[:, :, None], [row_R.shape[0], BLOCK_K])
    if _INTERPRETED:
        x_RK = widened(x_RK)  # It multiplies no bfloat16; the numbers are the same.
    else:
        x_RK = x_RK.to(TYPE)
    return x_RK


@triton.jit
def microscaled_product_kernel(
    c_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    scale_a_ptr: tl.tensor,
    scale_b_ptr: tl.tensor,
    whole_ptr: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    steps: tl.tensor,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """One tile of c; BLOCK terms of a row share a scale, where the factor has scales."""
    pdl_prologue()
    TYPE: tl.constexpr = c_ptr.dtype.element_ty
    M, N, K = sizes
    first_M, first_N = tile_origin(M, N, GROUP, BLOCK_M, BLOCK_N, INDEX)
    m, n = first_M + tl.arange(0, BLOCK_M), first_N + tl.arange(0, BLOCK_N)
    # Rows beyond M and columns beyond N read what is there, and are not written.
    inside_m, inside_n = tl.minimum(m, M - 1), tl.minimum(n, N - 1)
    c_MN = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    tl.assume(steps > 0)
    for step in range(steps):
        first = step * BLOCK_K
        a_MK = widened_tile(a_ptr, scale_a_ptr, inside_m, first, K, strides.a, strides.scale_a, TYPE, BLOCK, BLOCK_K)
        b_NK = widened_tile(b_ptr, scale_b_ptr, inside_n, first, K, strides.b, strides.scale_b, TYPE, BLOCK, BLOCK_K)
        c_MN = tl.dot(a_MK, tl.trans(b_NK), c_MN)
    if whole_ptr is not None:
        c_MN *= scale_at(whole_ptr)
    inside_MN = (m < M)[:, None] & (n < N)[None, :]
    tl.store(c_ptr + m[:, None] * N + n[None, :], converted(c_MN, c_ptr.dtype.element_ty), mask=inside_MN)


def multiply(a: Operand, b: Operand, block: int, whole: torch.Tensor | None = None) -> torch.Tensor:
    """``whole * a[M, K] @ b[N, K].T`` in bfloat16.

    Args:
        a: a factor.
        b: the other one.
        block: terms of a row that share a scale, in both.
        whole: one number, or None.

    Raises:
        NotImplementedError: other types, devices or blocks.
        ValueError: shapes that do not fit each other.
    """
    (M, K), (N, other) = _sizes(a, block), _sizes(b, block)
    require_served(whole, dtypes=SOURCES)
    if other != K or (whole is not None and whole.numel() != 1):
        raise ValueError(f"rows of {K} and of {other} terms are not multiplied")
    c = torch.empty((M, N), dtype=ROUNDED, device=a.numbers.device)
    if not c.numel():
        return c
    tile = _tile(M, N, c.device)
    tensors = [tensor for tensor in (a.numbers, b.numbers, c, a.scale, b.scale) if tensor is not None]
    reach = [Geometry(shape, (strides,)) for shape, strides in map(layout_of, tensors)]
    launch(
        microscaled_product_kernel,
        (triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n),),
        c.device,
        c,
        *(_as_read(operand.numbers) for operand in (a, b)),
        *(None if operand.scale is None else _as_read(operand.scale) for operand in (a, b)),
        whole,
        Sizes(M, N, K),
        Strides(a.numbers.stride(), b.numbers.stride(), _of_scale(a), _of_scale(b)),
        loop_bound(max(1, triton.cdiv(K, tile.k))),
        INDEX=max((index_type(part) for part in reach), key=lambda index: index.primitive_bitwidth),
        BLOCK=block,
        GROUP=GROUP,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        BLOCK_K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return c


def _sizes(operand: Operand, block: int) -> tuple[int, int]:
    """Rows and terms of a factor, whose types and scales are looked at."""
    numbers, scale = operand
    require_low(numbers, dtypes=(ROUNDED,) if scale is None else (E4M3, PACKED))
    if block not in (16, 32):
        raise NotImplementedError(f"blocks of {block} terms are not served")
    rows, K = numbers.shape[0], numbers.shape[1] * (2 if numbers.dtype == PACKED else 1)
    if scale is not None:
        require_low(scale, dtypes=(E8M0, E4M3))
        if K % block or tuple(scale.shape) != (rows, K // block):
            raise ValueError(f"{rows} x {K} numbers in blocks of {block} have no scales of {list(scale.shape)}")
    return rows, K


def _tile(rows: int, columns: int, device: torch.device) -> Tile:
    """As that of scaled products."""
    large = triton.cdiv(rows, LARGE.m) * triton.cdiv(columns, LARGE.n) >= multiprocessors(device)
    tile = LARGE if large and rows > FLAT.m else FLAT
    return tile._replace(m=max(FEWEST_ROWS, min(tile.m, triton.next_power_of_2(rows))))


def _as_read(tensor: torch.Tensor) -> torch.Tensor:
    """As bytes what Triton has no type for."""
    return as_bytes(tensor) if tensor.dtype in (PACKED, E8M0) else tensor


def _of_scale(operand: Operand) -> tuple[int, ...]:
    return (0, 0) if operand.scale is None else operand.scale.stride()


# ---------------------------------------------------------------- problems


class MXFP8Product(torch.nn.Module):
    """Problem 10: both factors in E4M3 with powers of two."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(
        self, x: torch.Tensor, scale_x: torch.Tensor, weight: torch.Tensor, scale_weight: torch.Tensor
    ) -> torch.Tensor:
        """``x[M, K] @ weight[N, K].T`` in bfloat16."""
        return multiply(Operand(x, scale_x), Operand(weight, scale_weight), self.block)


class MXFP4Linear(torch.nn.Module):
    """Problem 12: weights in E2M1 with powers of two, activations in bfloat16."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """``x[M, K] @ weight[N, K].T`` in bfloat16."""
        return multiply(Operand(x, None), Operand(weight, scale), self.block)


class NVFP4Product(torch.nn.Module):
    """Problem 14: both factors in E2M1 with scales in E4M3, and one scale for all."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(
        self,
        x: torch.Tensor,
        scale_x: torch.Tensor,
        weight: torch.Tensor,
        scale_weight: torch.Tensor,
        whole: torch.Tensor,
    ) -> torch.Tensor:
        """``whole * x[M, K] @ weight[N, K].T`` in bfloat16."""
        return multiply(Operand(x, scale_x), Operand(weight, scale_weight), self.block, whole)
