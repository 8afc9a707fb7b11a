"""Products of vectors: dot, of a matrix and a vector (mv, addmv), and the outer product added to a matrix (addr).

``out[m] = beta * c[m] + alpha * sum over k of a[m, k] * b[k]``. The matrix is read once, ``M * K * itemsize`` bytes,
which bounds the time. As in a sum, every lane of a tile keeps its own running result, and rows that are too few
to fill a device are split, whose partial sums a second launch adds up. A dot product is that of a matrix with one row.

Suffixes: ``_M`` rows, ``_T`` columns of a tile, ``_S`` splits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.elementwise import map_elements
from ..common.indexing import converted, number, widened
from ..common.launch import (
    ELEMENT_TYPE,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..common.matrix import Tiling, matrix_of, side, tile_rows, tiling
from ..common.promotion import promoted

_SERVED = tuple(dtype for dtype in ELEMENT_TYPE if dtype != torch.bool)

# ---------------------------------------------------------------- the kernels


@triton.jit
def finished(
    total_M: tl.tensor,
    c_ptr: tl.tensor,
    m: tl.tensor,
    c_stride: tl.tensor,
    M: tl.tensor,
    alpha_bits: tl.tensor,
    beta_bits: tl.tensor,
    SCALED: tl.constexpr,
    COMPUTE: tl.constexpr,
) -> tl.tensor:
    """``alpha * total + beta * c``; ``c`` may be absent."""
    result_M = total_M
    if SCALED:
        result_M = result_M * number(alpha_bits, COMPUTE)
    if c_ptr is not None:
        result_M += number(beta_bits, COMPUTE) * widened(tl.load(c_ptr + m * c_stride, mask=m < M, other=0)).to(COMPUTE)
    return result_M


@triton.jit
def product_kernel(
    out_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    c_ptr: tl.tensor,
    M: tl.tensor,
    K: tl.tensor,
    a_stride_M: tl.tensor,
    a_stride_K: tl.tensor,
    b_stride: tl.tensor,
    c_stride: tl.tensor,
    alpha_bits: tl.tensor,
    beta_bits: tl.tensor,
    steps: tl.tensor,
    SCALED: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """``out[s, m] = alpha * sum of a[m, k] b[k] + beta * c[m]`` over the columns k of split s."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    total_MT = tl.zeros([BLOCK_M, BLOCK_K], COMPUTE)
    for step in range(steps):
        k = (split * steps + step).to(INDEX) * BLOCK_K + tl.arange(0, BLOCK_K)
        at_MT = a_ptr + (m * a_stride_M)[:, None] + (k * a_stride_K)[None, :]
        a_MT = tl.load(at_MT, mask=(m < M)[:, None] & (k < K)[None, :], other=0)
        b_T = tl.load(b_ptr + k * b_stride, mask=k < K, other=0)
        total_MT += widened(a_MT).to(COMPUTE) * widened(b_T).to(COMPUTE)[None, :]
    total_M = tl.sum(total_MT, axis=1).to(COMPUTE)
    result_M = finished(total_M, c_ptr, m, c_stride, M, alpha_bits, beta_bits, SCALED, COMPUTE)
    at_M = out_ptr + split.to(INDEX) * M + m
    tl.store(at_M, converted(result_M.to(COMPUTE), out_ptr.dtype.element_ty), mask=m < M)


@triton.jit
def join_splits_kernel(
    out_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    c_ptr: tl.tensor,
    M: tl.tensor,
    c_stride: tl.tensor,
    alpha_bits: tl.tensor,
    beta_bits: tl.tensor,
    splits: tl.tensor,
    SCALED: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """As :func:`product_kernel`, from the sums of all splits."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    s = tl.arange(0, BLOCK_S).to(INDEX)
    inside = (s < splits)[:, None] & (m < M)[None, :]
    partial_SM = tl.load(partial_ptr + s[:, None] * M + m[None, :], mask=inside, other=0)
    total_M = tl.sum(partial_SM, axis=0).to(COMPUTE)
    result_M = finished(total_M, c_ptr, m, c_stride, M, alpha_bits, beta_bits, SCALED, COMPUTE)
    tl.store(out_ptr + m, converted(result_M.to(COMPUTE), out_ptr.dtype.element_ty), mask=m < M)


# ---------------------------------------------------------------- the host side


def _product(
    shape: Sequence[int],
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    alpha: float = 1,
    beta: float = 1,
) -> torch.Tensor:
    """``beta * c + alpha * (a @ b)`` for a matrix ``a``, in a tensor of ``shape``."""
    out = torch.empty(shape, dtype=a.dtype, device=a.device)
    if not out.numel():
        return out
    matrix = matrix_of(a.shape, [a.stride(), (0, b.stride(0))], {1})
    tiles = tiling(matrix, a.device)
    M, K = a.shape
    compute = compute_type(a.dtype)
    c_stride = c.stride(0) if c is not None and c.ndim and c.shape[0] > 1 else 0
    ends = (number_bits(alpha, compute), number_bits(beta, compute))
    constants = {"SCALED": alpha != 1, "COMPUTE": compute, "INDEX": matrix.index}
    partial = out
    if tiles.splits > 1:
        partial = torch.empty((tiles.splits, M), dtype=compute_dtype(a.dtype), device=a.device)
    launch(
        product_kernel,
        (triton.cdiv(M, tiles.block_m), tiles.splits),
        a.device,
        partial,
        a,
        b,
        c if tiles.splits == 1 else None,
        M,
        K,
        *a.stride(),
        b.stride(0),
        c_stride,
        *ends,
        loop_bound(tiles.steps),
        **(constants | {"SCALED": alpha != 1 and tiles.splits == 1}),
        BLOCK_M=tiles.block_m,
        BLOCK_K=tiles.block_k,
        num_warps=tiles.warps,
    )
    if tiles.splits > 1:
        _join_splits(out, partial, c, (M, c_stride, *ends), tiles, constants)
    return out


def _join_splits(
    out: torch.Tensor,
    partial: torch.Tensor,
    c: torch.Tensor | None,
    numbers: tuple[int, ...],
    tiles: Tiling,
    constants: dict[str, object],
) -> None:
    block_s = int(triton.next_power_of_2(tiles.splits))
    block_m = side(numbers[0], max(4096 // block_s, 1))
    grid = (triton.cdiv(numbers[0], block_m),)
    arguments = (out, partial, c, *numbers, tiles.splits)
    launch(join_splits_kernel, grid, out.device, *arguments, **constants, BLOCK_M=block_m, BLOCK_S=block_s)


def _require_sizes(a: torch.Tensor, dims: int, b: torch.Tensor) -> None:
    """Refuse what eager refuses.

    Raises:
        TypeError: two types.
        ValueError: shapes that do not match.
    """
    require_served(a, b, dtypes=_SERVED)
    if a.dtype != b.dtype:
        raise TypeError(f"the factors are of {a.dtype} and {b.dtype}")
    if a.ndim != dims or b.ndim != 1 or a.shape[-1] != b.shape[0]:
        raise ValueError(f"shapes {list(a.shape)} and {list(b.shape)} do not match")


# ---------------------------------------------------------------- the ops


def mv(self: torch.Tensor, vec: torch.Tensor) -> torch.Tensor:
    """The product of a matrix and a vector."""
    _require_sizes(self, 2, vec)
    return _product(self.shape[:1], self, vec)


def addmv(
    self: torch.Tensor, mat: torch.Tensor, vec: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """``beta * self + alpha * (mat @ vec)``; ``self`` is not read if beta is 0.

    Raises:
        TypeError: more than one type.
        ValueError: shapes that do not match.
    """
    _require_sizes(mat, 2, vec)
    if self.dtype != mat.dtype:
        raise TypeError(f"the addend is of {self.dtype} and the matrix of {mat.dtype}")
    if self.ndim > 1 or self.numel() not in (1, mat.shape[0]):
        raise ValueError(f"an addend of shape {list(self.shape)} does not fit {mat.shape[0]} rows")
    return _product(mat.shape[:1], mat, vec, self if beta else None, alpha=alpha, beta=beta)


def dot(self: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The sum of the products of two vectors' elements."""
    _require_sizes(self, 1, tensor)
    return _product((), self.unsqueeze(0), tensor)


def vdot(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """As :func:`dot`: no number that is served has another conjugate."""
    return dot(self, other)


@triton.jit
def outer_of(c: tl.tensor, x: tl.tensor, y: tl.tensor, beta: tl.tensor, alpha: tl.tensor) -> tl.tensor:
    """``beta c + alpha x y``."""
    return beta * c + alpha * x * y


@triton.jit
def scaled_outer_of(x: tl.tensor, y: tl.tensor, alpha: tl.tensor) -> tl.tensor:
    """``alpha x y``."""
    return alpha * x * y


def addr(
    self: torch.Tensor, vec1: torch.Tensor, vec2: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """``beta * self + alpha * outer(vec1, vec2)`` in the promoted type; ``self`` is not read if beta is 0.

    Raises:
        NotImplementedError: bools.
        ValueError: shapes that do not match.
    """
    if vec1.ndim != 1 or vec2.ndim != 1:
        raise ValueError(f"an outer product takes vectors, not {vec1.ndim} and {vec2.ndim} dimensions")
    require_served(self, vec1, vec2, dtypes=_SERVED)
    shape = (vec1.shape[0], vec2.shape[0])
    if tuple(self.shape) != shape and torch.broadcast_shapes(self.shape, shape) != shape:
        raise ValueError(f"shape {list(self.shape)} does not fit an outer product of {list(shape)}")
    result = promoted([self, vec1, vec2])
    x, y = vec1.unsqueeze(1), vec2.unsqueeze(0)
    if beta == 0:
        return map_elements(scaled_outer_of, [x, y], [result] * 2, result, [alpha])
    return map_elements(outer_of, [self, x, y], [result] * 3, result, [beta, alpha])
