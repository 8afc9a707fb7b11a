"""Grids of places for :mod:`.grid_sampling`: an affine map of each place of an output, and its gradient.

A place of an output has one coordinate in [-1, 1] along each dimension, width first, and a 1 behind them: ``base_J``.
Forward ``grid[n, p, c] = sum over j of theta[n, c, j] base[p, j]``: ``numel * itemsize`` bytes written. Backward
``grad_theta[n, c, j] = sum over p of grad[n, p, c] base[p, j]``: a program for each image reads them once.

Suffixes: ``_S`` depth, height and width, ``_P`` places, ``_J`` coordinates and the 1, ``_C`` rows of theta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import converted
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_type,
    launch,
    loop_bound,
    pdl_prologue,
    require_served,
)
from ..copies.rearrangements import copied

_BLOCK = 1024


@triton.jit
def coordinate_of(index: tl.tensor, size: tl.tensor, ALIGN: tl.constexpr, COMPUTE: tl.constexpr) -> tl.tensor:
    """The coordinate of a position: the ends are the outermost centres if ALIGN, else outer edges; 0 for one alone."""
    twice = (2 * index + 1 - size).to(COMPUTE)
    if ALIGN:
        result = twice / tl.maximum(size - 1, 1).to(COMPUTE)
    else:
        result = twice / size.to(COMPUTE)
    return result


@triton.jit
def base_of(
    place: tl.tensor, size_S: tl.tuple, ALIGN: tl.constexpr, COMPUTE: tl.constexpr, DIMS: tl.constexpr
) -> tl.tuple:
    """What a row of theta is multiplied with at these places."""
    x = coordinate_of(place % size_S[2], size_S[2], ALIGN, COMPUTE)
    y = coordinate_of(place // size_S[2] % size_S[1], size_S[1], ALIGN, COMPUTE)
    one = tl.full(place.shape, 1, COMPUTE)
    base_J: tl.tuple = (x, y)
    if DIMS == 3:
        base_J += (coordinate_of(place // size_S[2] // size_S[1], size_S[0], ALIGN, COMPUTE),)
    return base_J + (one,)


@triton.jit
def affine_grid_kernel(
    grid_ptr: tl.tensor,
    theta_ptr: tl.tensor,
    theta_strides_NCJ: tl.tuple,
    size_S: tl.tuple,
    places: tl.tensor,
    ALIGN: tl.constexpr,
    COMPUTE: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """The grid at a block of places of one image."""
    pdl_prologue()
    n = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    base_J = base_of(place, size_S, ALIGN, COMPUTE, DIMS)
    grid_ptr += (n * places + place) * DIMS
    for c in tl.static_range(DIMS):
        row_ptr = theta_ptr + n * theta_strides_NCJ[0] + c * theta_strides_NCJ[1]
        total = tl.zeros([BLOCK], COMPUTE)
        for j in tl.static_range(DIMS + 1):
            total += tl.load(row_ptr + j * theta_strides_NCJ[2]).to(COMPUTE) * base_J[j]
        tl.store(grid_ptr + c, converted(total, grid_ptr.dtype.element_ty), mask=place < places)


@triton.jit
def affine_grid_backward_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    size_S: tl.tuple,
    places: tl.tensor,
    steps: tl.tensor,
    ALIGN: tl.constexpr,
    COMPUTE: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One row of the gradient of the theta of one image, which is written as a column."""
    pdl_prologue()
    n, c = tl.program_id(0).to(tl.int64), tl.program_id(1)
    total_J = (tl.zeros([BLOCK], COMPUTE),) * (DIMS + 1)
    for step in range(steps):
        place = step * BLOCK + tl.arange(0, BLOCK)
        grad = tl.load(grad_ptr + (n * places + place) * DIMS + c, mask=place < places, other=0).to(COMPUTE)
        base_J = base_of(place, size_S, ALIGN, COMPUTE, DIMS)
        sums_J = ()
        for j in tl.static_range(DIMS + 1):
            sums_J += (total_J[j] + grad * base_J[j],)  # type: ignore[assignment]
        total_J = sums_J
    for j in tl.static_range(DIMS + 1):
        total = converted(tl.sum(total_J[j], axis=0), out_ptr.dtype.element_ty)
        tl.store(out_ptr + (n * (DIMS + 1) + j) * DIMS + c, total)


def _space(size: Sequence[int]) -> tuple[int, int, int]:
    """Depth, height and width of an output of (N, C, H, W) or (N, C, D, H, W).

    Raises:
        ValueError: another number of dimensions, or an empty one.
    """
    if len(size) not in (4, 5) or min(size) <= 0:
        raise ValueError(f"a grid is made for four or five dimensions that are not empty, not {[*size]}")
    depth, height, width = (1, *size[2:])[-3:]
    return depth, height, width


def _block(places: int) -> int:
    return min(int(triton.next_power_of_2(places)), INTERPRETED_TILE if INTERPRETED else _BLOCK)


def affine_grid_generator(theta: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor:
    """The places that ``theta`` maps those of an output to.

    Args:
        theta: of shape (N, 2, 3), or (N, 3, 4) in space.
        size: of the output, (N, C, H, W) or (N, C, D, H, W).
        align_corners: -1 and 1 are the centres of the outermost positions, not their outer edges.

    Returns:
        (N, H, W, 2) or (N, D, H, W, 3).

    Raises:
        ValueError: shapes that do not fit.
    """
    require_served(theta, dtypes=FLOATS)
    space, dims = _space(size), len(size) - 2
    if theta.shape != (size[0], dims, dims + 1):
        raise ValueError(f"theta has the shape {[size[0], dims, dims + 1]}, not {[*theta.shape]}")
    places = math.prod(space)
    grid = torch.empty((size[0], *size[2:], dims), dtype=theta.dtype, device=theta.device)
    block = _block(places)
    launch(
        affine_grid_kernel,
        (triton.cdiv(places, block), size[0]),
        theta.device,
        grid,
        theta,
        theta.stride(),
        space,
        places,
        ALIGN=align_corners,
        COMPUTE=compute_type(theta.dtype),
        DIMS=dims,
        BLOCK=block,
    )
    return grid


def affine_grid_generator_backward(grad: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor:
    """The gradient of theta of :func:`affine_grid_generator`, out of that of the grid.

    Raises:
        ValueError: shapes that do not fit.
    """
    require_served(grad, dtypes=FLOATS)
    space, dims = _space(size), len(size) - 2
    if grad.shape != (size[0], *size[2:], dims):
        raise ValueError(f"the gradient has the shape {[size[0], *size[2:], dims]}, not {[*grad.shape]}")
    places = math.prod(space)
    out = torch.empty((size[0], dims + 1, dims), dtype=grad.dtype, device=grad.device)
    block = _block(places)
    launch(
        affine_grid_backward_kernel,
        (size[0], dims),
        grad.device,
        out,
        grad if grad.is_contiguous() else copied(grad),
        space,
        places,
        loop_bound(triton.cdiv(places, block)),
        ALIGN=align_corners,
        COMPUTE=compute_type(grad.dtype),
        DIMS=dims,
        BLOCK=block,
    )
    return out.mT
