"""Matrix product.

``c_MN = a_MK @ b_KN``: ``2 M N K`` operations over ``(M K + K N + M N) * itemsize`` compulsory bytes. A program
owns one tile of the result and walks along K.

Suffixes: ``_M`` rows of a and c, ``_N`` columns of b and c, ``_K`` the summed dimension.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .indexing import Geometry, converted, index_type
from .launch import ELEMENT_TYPE, INTERPRETED, compute_type, launch, loop_bound, require_served
from .pointwise import FLOATS

#: Programs in this many rows of tiles run side by side, so that they share their tiles of b in L2.
GROUP = 8


@triton.jit
def matmul_kernel(
    c_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    K: tl.tensor,
    a_stride_M: tl.tensor,
    a_stride_K: tl.tensor,
    b_stride_K: tl.tensor,
    b_stride_N: tl.tensor,
    steps: tl.tensor,
    ACCUMULATE: tl.constexpr,
    MULTIPLY: tl.constexpr,
    USE_DOT: tl.constexpr,
    INDEX: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """One ``BLOCK_M x BLOCK_N`` tile of the row-major c. float32 products are exact float32, never tf32."""
    tiles_M, tiles_N = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group, within = tl.program_id(0) // (GROUP * tiles_N), tl.program_id(0) % (GROUP * tiles_N)
    height = tl.minimum(tiles_M - group * GROUP, GROUP)
    m = (group * GROUP + within % height).to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (within // height).to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)
    c_MN = tl.zeros([BLOCK_M, BLOCK_N], ACCUMULATE)
    for step in range(steps):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K).to(INDEX)
        a_mask, b_mask = (m < M)[:, None] & (k < K)[None, :], (k < K)[:, None] & (n < N)[None, :]
        a_MK = tl.load(a_ptr + m[:, None] * a_stride_M + k[None, :] * a_stride_K, mask=a_mask, other=0)
        b_KN = tl.load(b_ptr + k[:, None] * b_stride_K + n[None, :] * b_stride_N, mask=b_mask, other=0)
        if USE_DOT:
            c_MN = tl.dot(a_MK.to(MULTIPLY), b_KN.to(MULTIPLY), c_MN, input_precision="ieee", out_dtype=ACCUMULATE)
        else:
            product_MKN = a_MK.to(ACCUMULATE)[:, :, None] * b_KN.to(ACCUMULATE)[None, :, :]
            c_MN += tl.sum(product_MKN, axis=1).to(ACCUMULATE)
    c_ptr_MN = c_ptr + m[:, None] * N + n[None, :]
    tl.store(c_ptr_MN, converted(c_MN, c_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


class Tile(NamedTuple):
    """Block sizes and the launch options that go with them."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


def mm(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """``self @ mat2`` of two matrices of one type.

    Raises:
        ValueError: no matrices, or sizes that do not fit.
        TypeError: two types, or bool.
    """
    if self.ndim != 2 or mat2.ndim != 2 or self.shape[1] != mat2.shape[0]:
        raise ValueError(f"mm needs matrices that fit, not {list(self.shape)} and {list(mat2.shape)}")
    if self.dtype != mat2.dtype or self.dtype == torch.bool:
        raise TypeError(f"mm is not defined for {self.dtype} and {mat2.dtype}")
    require_served(self, mat2)
    out = torch.empty((self.shape[0], mat2.shape[1]), dtype=self.dtype, device=self.device)
    if out.numel():
        _launch_matmul(out, self, mat2)
    return out


def _launch_matmul(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    (M, K), N = a.shape, b.shape[1]
    # Tensor cores multiply floating-point tiles only; integers take the plain sum of products.
    use_dot = a.dtype in FLOATS
    # The interpreter multiplies the raw bits of bfloat16; their products are exact in float32.
    multiply = compute_type(a.dtype) if INTERPRETED else ELEMENT_TYPE[a.dtype]
    tile = _tile(M, N, a.dtype) if use_dot else Tile(16, 16, 16, 4, 1)
    reach = [Geometry(tuple(x.shape), (x.stride(),)) for x in (a, b, c)]
    launch(
        matmul_kernel,
        (triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n),),
        c.device,
        c,
        a,
        b,
        M,
        N,
        K,
        *a.stride(),
        *b.stride(),
        loop_bound(triton.cdiv(K, tile.k)),
        ACCUMULATE=compute_type(a.dtype),
        MULTIPLY=multiply,
        USE_DOT=use_dot,
        INDEX=max((index_type(part) for part in reach), key=lambda index: index.primitive_bitwidth),
        GROUP=GROUP,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        BLOCK_K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def _tile(M: int, N: int, dtype: torch.dtype) -> Tile:
    """A tile that fits the type's tensor-core instructions, smaller where the result is small."""
    if INTERPRETED:
        return Tile(64, 64, 64, 4, 1)
    if dtype == torch.float64:
        return Tile(64, 64, 16, 4, 2)
    if dtype == torch.float32:
        return Tile(64, 64, 32, 4, 3)
    if M * N >= 4096 * 4096:
        return Tile(128, 256, 64, 8, 3)
    if M * N >= 1024 * 1024:
        return Tile(128, 128, 64, 4, 4)
    return Tile(64, 64, 64, 4, 4)
