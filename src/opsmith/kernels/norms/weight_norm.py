"""Weight normalization: ``w = v * g / |v|`` with a norm and a g for each position along one dimension.

With ``c = sum(dw * v)`` over the other dimensions the gradients are ``dg = c / |v|`` and ``dv = g / |v| * (dw - v * c /
|v|^2)``. A program reads its rows for their sums, and again, mostly from the cache, for the result.

Suffixes: ``_M`` positions along the dimension, ``_T`` columns of a tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import converted, normalized_dims
from ..common.launch import compute_dtype, compute_type, launch, loop_bound, pdl_prologue, require_served
from ..common.matrix import Matrix, column_offsets, matrix_of, row_offsets, tile_columns, tile_rows, tiling

# ---------------------------------------------------------------- the kernels


@triton.jit
def weight_norm_kernel(
    w_ptr: tl.tensor,
    norm_ptr: tl.tensor,
    v_ptr: tl.tensor,
    g_ptr: tl.tensor,
    shape: tl.tuple,
    v_strides: tl.tuple,
    w_strides: tl.tuple,
    sizes: tl.tuple,
    g_stride: tl.tensor,
    steps: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """``norm_M = |v_M|`` and ``w_M = v_M * g_M / norm_M``."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    is_row_M = m < sizes[0]
    v_M = v_ptr + row_offsets(m, shape, v_strides)
    squares_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    for step in range(steps):
        j, k = tile_columns(step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        v_MT = tl.load(v_M[:, None] + column_offsets(j, k, shape, v_strides)[None, :], mask=inside, other=0).to(COMPUTE)
        squares_MT += v_MT * v_MT
    norm_M = tl.sqrt(tl.sum(squares_MT, axis=1))
    tl.store(norm_ptr + m, norm_M.to(norm_ptr.dtype.element_ty), mask=is_row_M)
    scale_M = tl.load(g_ptr + m * g_stride, mask=is_row_M, other=0).to(COMPUTE) / norm_M
    for step in range(steps):
        j, k = tile_columns(step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        v_MT = tl.load(v_M[:, None] + column_offsets(j, k, shape, v_strides)[None, :], mask=inside, other=0).to(COMPUTE)
        at_MT = row_offsets(m, shape, w_strides)[:, None] + column_offsets(j, k, shape, w_strides)[None, :]
        tl.store(w_ptr + at_MT, converted(v_MT * scale_M[:, None], w_ptr.dtype.element_ty), mask=inside)


@triton.jit
def weight_norm_backward_kernel(
    dv_ptr: tl.tensor,
    dg_ptr: tl.tensor,
    dw_ptr: tl.tensor,
    v_ptr: tl.tensor,
    g_ptr: tl.tensor,
    norm_ptr: tl.tensor,
    shape: tl.tuple,
    dw_strides: tl.tuple,
    v_strides: tl.tuple,
    dv_strides: tl.tuple,
    sizes: tl.tuple,
    vector_strides: tl.tuple,
    steps: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """``dg_M`` and ``dv_M``; ``vector_strides`` are those of g and of the norms."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    is_row_M = m < sizes[0]
    v_M = v_ptr + row_offsets(m, shape, v_strides)
    dw_M = dw_ptr + row_offsets(m, shape, dw_strides)
    product_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    for step in range(steps):
        j, k = tile_columns(step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        v_MT = tl.load(v_M[:, None] + column_offsets(j, k, shape, v_strides)[None, :], mask=inside, other=0).to(COMPUTE)
        dw_MT = tl.load(dw_M[:, None] + column_offsets(j, k, shape, dw_strides)[None, :], mask=inside, other=0)
        product_MT += v_MT * dw_MT.to(COMPUTE)
    product_M = tl.sum(product_MT, axis=1)
    g_M = tl.load(g_ptr + m * vector_strides[0], mask=is_row_M, other=0).to(COMPUTE)
    norm_M = tl.load(norm_ptr + m * vector_strides[1], mask=is_row_M, other=1).to(COMPUTE)
    tl.store(dg_ptr + m, converted(product_M / norm_M, dg_ptr.dtype.element_ty), mask=is_row_M)
    scale_M, slope_M = g_M / norm_M, product_M / (norm_M * norm_M)
    for step in range(steps):
        j, k = tile_columns(step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        v_MT = tl.load(v_M[:, None] + column_offsets(j, k, shape, v_strides)[None, :], mask=inside, other=0).to(COMPUTE)
        dw_MT = tl.load(dw_M[:, None] + column_offsets(j, k, shape, dw_strides)[None, :], mask=inside, other=0)
        dv_MT = (dw_MT.to(COMPUTE) - v_MT * slope_M[:, None]) * scale_M[:, None]
        at_MT = row_offsets(m, shape, dv_strides)[:, None] + column_offsets(j, k, shape, dv_strides)[None, :]
        tl.store(dv_ptr + at_MT, converted(dv_MT, dv_ptr.dtype.element_ty), mask=inside)


# ---------------------------------------------------------------- the ops


def weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale the slices of ``v`` along ``dim`` to the lengths ``g``.

    Returns:
        The scaled tensor, and the norms in the shape of ``g``, in float32 for half types.

    Raises:
        ValueError: ``g`` has not one element for each slice.
        TypeError: ``g`` is of another type.
    """
    require_served(v, g, dtypes=FLOATS)
    axis = _checked_axis(v, g, dim)
    w = torch.empty(v.shape, dtype=v.dtype, device=v.device)
    norms = torch.empty(g.shape, dtype=compute_dtype(g.dtype), device=v.device)
    if not v.numel():
        raise NotImplementedError("empty weights are not served")
    matrix = _slices(v, [v, w], axis)
    tiles = tiling(matrix, v.device, split=False)
    launch(
        weight_norm_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m),),
        v.device,
        w,
        norms,
        v,
        g,
        matrix.shape,
        matrix.strides(0),
        matrix.strides(1),
        matrix.sizes,
        _step(g),
        loop_bound(tiles.steps),
        COMPUTE=compute_type(v.dtype),
        INDEX=matrix.index,
        **tiles.blocks(),
    )
    return w, norms


def weight_norm_backward(
    grad_w: torch.Tensor, saved_v: torch.Tensor, saved_g: torch.Tensor, saved_norms: torch.Tensor, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of ``v`` and ``g``.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: ``saved_g`` is of another type than ``saved_v``.
    """
    require_served(grad_w, saved_v, saved_g, saved_norms, dtypes=FLOATS)
    axis = _checked_axis(saved_v, saved_g, dim)
    if grad_w.shape != saved_v.shape or saved_norms.numel() != saved_g.numel():
        raise ValueError(f"a gradient of {list(grad_w.shape)} does not fit a weight of {list(saved_v.shape)}")
    dv = torch.empty(saved_v.shape, dtype=saved_v.dtype, device=saved_v.device)
    dg = torch.empty(saved_g.shape, dtype=saved_g.dtype, device=saved_v.device)
    if not dv.numel():
        raise NotImplementedError("empty weights are not served")
    matrix = _slices(saved_v, [grad_w, saved_v, dv], axis)
    tiles = tiling(matrix, dv.device, split=False)
    launch(
        weight_norm_backward_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m),),
        dv.device,
        dv,
        dg,
        grad_w,
        saved_v,
        saved_g,
        saved_norms,
        matrix.shape,
        *(matrix.strides(operand) for operand in range(3)),
        matrix.sizes,
        (_step(saved_g), _step(saved_norms)),
        loop_bound(tiles.steps),
        COMPUTE=compute_type(saved_v.dtype),
        INDEX=matrix.index,
        **tiles.blocks(),
    )
    return dv, dg


def _checked_axis(v: torch.Tensor, g: torch.Tensor, dim: int) -> int:
    (axis,) = normalized_dims(dim, v.ndim)
    if not v.ndim or g.numel() != v.shape[axis] or g.numel() not in (1, max(g.shape, default=1)):
        raise ValueError(f"g of {list(g.shape)} has not one element for each slice of {list(v.shape)} along {dim}")
    if g.dtype != v.dtype:
        raise TypeError(f"g of {g.dtype} does not fit v of {v.dtype}")
    return axis


def _slices(v: torch.Tensor, operands: list[torch.Tensor], axis: int) -> Matrix:
    return matrix_of(v.shape, [t.stride() for t in operands], [d for d in range(v.ndim) if d != axis])


def _step(vector: torch.Tensor) -> int:
    """The stride of the one dimension that is longer than 1."""
    return next((stride for size, stride in zip(vector.shape, vector.stride(), strict=True) if size > 1), 0)
