"""Distances between the rows of two matrices (cdist), or of one (pdist), and their gradients.

``d[p, r] = (sum over m of |x1[p, m] - x2[r, m]|^q)^(1/q)``. A program computes a tile of pairs: it walks over m, and
each step reads as many elements of either matrix as the tile has rows and columns, so that of ``2 P R M`` elements
that are subtracted ``2 P R M / 32`` are read, most of them from the caches. Nothing is cancelled, as it is
in ``|a|^2 + |b|^2 - 2 a b``. A gradient is the same walk over the other matrix's rows.

Suffixes: ``_P`` rows of the first matrix, ``_R`` of the second, ``_M`` elements of a row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Geometry, converted, expanded_strides, index_type, merge_dims, number, offset_of, widened
from ..common.launch import (
    compute_type,
    launch,
    layout_of,
    loop_bound,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..common.matrix import side
from ..copies.rearrangements import fill
from .vector_norms import norm_fold, raised

#: The norms whose gradients have a form of their own.
ONE, TWO, INFINITE, BELOW_TWO, ABOVE_TWO = (tl.constexpr(n) for n in range(5))

# ---------------------------------------------------------------- distances


@triton.jit
def pair_of(p: tl.tensor, r: tl.tensor, rows: tl.tensor) -> tl.tensor:
    """The place of the pair ``p < r`` of ``rows`` rows, among (0, 1), (0, 2), .. (1, 2), .."""
    return p * rows - p * (p + 1) // 2 + r - p - 1


@triton.jit
def distance_kernel(
    out_ptr: tl.tensor,
    x1_ptr: tl.tensor,
    x2_ptr: tl.tensor,
    batch_shape: tl.tuple,
    x1_batch_strides: tl.tuple,
    x2_batch_strides: tl.tuple,
    x1_strides: tl.tuple,
    x2_strides: tl.tuple,
    sizes: tl.tuple,
    norm_bits: tl.tensor,
    steps: tl.tensor,
    lift: tl.constexpr,
    join: tl.constexpr,
    across: tl.constexpr,
    finish: tl.constexpr,
    START: tl.constexpr,
    COMPUTE: tl.constexpr,
    PAIRS: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_M: tl.constexpr,
) -> None:
    """A tile of distances; PAIRS: of the rows of one matrix, each pair once. ``sizes`` is ``(P, R, M)``."""
    pdl_prologue()
    P, R, M = sizes
    tiles_R = tl.cdiv(R, BLOCK_R)
    tiles = tl.cdiv(P, BLOCK_P) * tiles_R
    batch = (tl.program_id(0) // tiles).to(INDEX)
    tile = tl.program_id(0) % tiles
    first_p, first_r = tile // tiles_R * BLOCK_P, tile % tiles_R * BLOCK_R
    if PAIRS and first_r + BLOCK_R <= first_p + 1:
        return
    p = first_p.to(INDEX) + tl.arange(0, BLOCK_P)
    r = first_r.to(INDEX) + tl.arange(0, BLOCK_R)
    norm = number(norm_bits, COMPUTE)
    x1_P = x1_ptr + offset_of(batch, batch_shape, x1_batch_strides) + p * x1_strides[0]
    x2_R = x2_ptr + offset_of(batch, batch_shape, x2_batch_strides) + r * x2_strides[0]
    result_PRM = tl.full([BLOCK_P, BLOCK_R, BLOCK_M], START, COMPUTE)
    for step in range(steps):
        m = step * BLOCK_M + tl.arange(0, BLOCK_M).to(INDEX)
        x1_PM = tl.load(x1_P[:, None] + m[None, :] * x1_strides[1], mask=(p < P)[:, None] & (m < M)[None, :], other=0)
        x2_RM = tl.load(x2_R[:, None] + m[None, :] * x2_strides[1], mask=(r < R)[:, None] & (m < M)[None, :], other=0)
        difference_PRM = widened(x1_PM).to(COMPUTE)[:, None, :] - widened(x2_RM).to(COMPUTE)[None, :, :]
        lifted_PRM = tl.where((m < M)[None, None, :], lift(difference_PRM, norm).to(COMPUTE), START)
        result_PRM = join(result_PRM, lifted_PRM).to(COMPUTE)
    result = finish(across(tl.reshape(result_PRM, [BLOCK_P * BLOCK_R, BLOCK_M])), norm)
    result_PR = converted(tl.reshape(result, [BLOCK_P, BLOCK_R]), out_ptr.dtype.element_ty)
    if PAIRS:
        inside = (p[:, None] < r[None, :]) & (r < R)[None, :]
        tl.store(out_ptr + pair_of(p[:, None], r[None, :], P), result_PR, mask=inside)
    else:
        inside = (p < P)[:, None] & (r < R)[None, :]
        tl.store(out_ptr + (batch * P + p[:, None]) * R + r[None, :], result_PR, mask=inside)


class Rows(NamedTuple):
    """Two batches of matrices, broadcast against each other, whose rows are paired.

    Attributes:
        shape: of the batches.
        batch: its dimensions merged, with the strides of both.
        sizes: rows of the first matrix, rows of the second, and elements of a row.
    """

    shape: tuple[int, ...]
    batch: Geometry
    sizes: tuple[int, int, int]

    @classmethod
    def of(cls, x1: torch.Tensor, x2: torch.Tensor) -> Rows:
        """Pair the rows of ``x1[.., P, M]`` and ``x2[.., R, M]``.

        Raises:
            ValueError: no matrices, or rows of two lengths.
            TypeError: two types.
        """
        if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
            raise ValueError(f"the rows of {list(x1.shape)} and {list(x2.shape)} have no distances")
        if x1.dtype != x2.dtype:
            raise TypeError(f"the rows are of {x1.dtype} and of {x2.dtype}")
        shape = tuple(torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2]))
        strides = [expanded_strides((tuple(x.shape[:-2]), x.stride()[:-2]), shape) for x in (x1, x2)]
        batch = merge_dims(shape, strides, range(len(shape) - 1, -1, -1))
        return cls(shape, batch, (x1.shape[-2], x2.shape[-2], x1.shape[-1]))

    @property
    def batches(self) -> int:
        """The number of pairs of matrices."""
        return math.prod(self.shape)

    def index_type(self, *tensors: torch.Tensor) -> tl.dtype:
        """The type of offsets in all that takes part."""
        P, R, _ = self.sizes
        spans = [merge_dims(*_spread(tensor), range(tensor.ndim)) for tensor in tensors]
        return index_type(self.batch, Geometry((self.batches * P * R,), ((1,),)), *spans)


def _spread(tensor: torch.Tensor) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    shape, strides = layout_of(tensor)
    return shape, [strides]


def _blocks(P: int, R: int, M: int, triples: int) -> tuple[int, int, int]:
    """Rows of either matrix, and elements of a row, that a program holds at once: so many triples at most."""
    block_p, block_r = side(P, 32), side(R, 32)
    return block_p, block_r, side(M, min(triples // (block_p * block_r), 64))


def _distances(out: torch.Tensor, x1: torch.Tensor, x2: torch.Tensor, rows: Rows, norm: float, *, pairs: bool) -> None:
    steps = norm_fold(norm)
    block_p, block_r, block_m = _blocks(*rows.sizes, 8192)
    P, R, M = rows.sizes
    compute = compute_type(x1.dtype)
    launch(
        distance_kernel,
        (rows.batches * triton.cdiv(P, block_p) * triton.cdiv(R, block_r),),
        x1.device,
        out,
        x1,
        x2,
        rows.batch.shape_D,
        *rows.batch.strides_ID,
        x1.stride()[-2:],
        x2.stride()[-2:],
        rows.sizes,
        number_bits(norm, compute),
        loop_bound(triton.cdiv(M, block_m)),
        lift=steps.lift,
        join=steps.join,
        across=steps.across,
        finish=steps.finish,
        START=steps.start,
        COMPUTE=compute,
        PAIRS=pairs,
        INDEX=rows.index_type(x1, x2),
        BLOCK_P=block_p,
        BLOCK_R=block_r,
        BLOCK_M=block_m,
        num_warps=8,
    )


def _require_norm(norm: float) -> None:
    if norm < 0:
        raise ValueError(f"there is no distance of order {norm}")


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float, compute_mode: int | None) -> torch.Tensor:  # noqa: ARG001 - Of eager's two ways.
    """The distances of order ``p`` between the rows of ``x1[.., P, M]`` and ``x2[.., R, M]``: ``[.., P, R]``.

    Raises:
        ValueError: a negative order, or shapes that do not fit.
        TypeError: two types.
    """
    require_served(x1, x2, dtypes=FLOATS)
    _require_norm(p)
    rows = Rows.of(x1, x2)
    out = torch.empty((*rows.shape, *rows.sizes[:2]), dtype=x1.dtype, device=x1.device)
    if out.numel():
        _distances(out, x1, x2, rows, float(p), pairs=False)
    return out


def euclidean_dist(x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
    """As :func:`cdist` of order 2."""
    return cdist(x1, x2, 2.0, None)


def pdist(self: torch.Tensor, p: float = 2) -> torch.Tensor:
    """The distances of order ``p`` between the rows of ``self[N, M]``, each pair once: ``[N (N - 1) / 2]``.

    Raises:
        ValueError: a negative order, or no matrix.
    """
    require_served(self, dtypes=FLOATS)
    _require_norm(p)
    if self.ndim != 2:
        raise ValueError(f"pdist takes a matrix, not {self.ndim} dimensions")
    N = self.shape[0]
    out = torch.empty(N * (N - 1) // 2, dtype=self.dtype, device=self.device)
    if out.numel():
        _distances(out, self, self, Rows.of(self, self), float(p), pairs=True)
    return out


# ---------------------------------------------------------------- gradients


@triton.jit
def sign_of(x: tl.tensor) -> tl.tensor:
    """-1, 0 or 1."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def slope_of(x: tl.tensor, distance: tl.tensor, norm: tl.tensor, NORM: tl.constexpr) -> tl.tensor:
    """The derivative of a distance by the difference ``x`` of two of the elements; 0 where it does not exist."""
    if NORM == ONE:
        slope = sign_of(x)
    elif NORM == TWO:
        slope = tl.where(distance == 0, 0.0, x / tl.where(distance == 0, 1.0, distance))
    elif NORM == INFINITE:
        slope = tl.where(tl.abs(x) == distance, sign_of(x), 0.0)
    else:
        flat = (distance == 0) | ((x == 0) & (norm < 1.0))
        safe = tl.where(distance == 0, 1.0, distance)
        if NORM == BELOW_TWO:
            power = sign_of(x) * raised(tl.where(flat, 1.0, tl.abs(x)), norm - 1.0)
        else:
            power = x * raised(tl.abs(x), norm - 2.0)
        slope = tl.where(flat, 0.0, power / raised(safe, norm - 1.0))
    return slope


@triton.jit
def distance_gradient_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    x1_ptr: tl.tensor,
    x2_ptr: tl.tensor,
    distance_ptr: tl.tensor,
    batch_shape: tl.tuple,
    x1_batch_strides: tl.tuple,
    x2_batch_strides: tl.tuple,
    grad_batch_strides: tl.tuple,
    distance_batch_strides: tl.tuple,
    x1_strides: tl.tuple,
    x2_strides: tl.tuple,
    grad_strides: tl.tuple,
    distance_strides: tl.tuple,
    sizes: tl.tuple,
    norm_bits: tl.tensor,
    steps: tl.tensor,
    NORM: tl.constexpr,
    COMPUTE: tl.constexpr,
    PAIRS: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_M: tl.constexpr,
) -> None:
    """A tile of the gradient of x1: ``out[p, m] = sum over r of grad[p, r] d distance[p, r] / d x1[p, m]``."""
    pdl_prologue()
    P, R, M = sizes
    tiles_M = tl.cdiv(M, BLOCK_M)
    tiles = tl.cdiv(P, BLOCK_P) * tiles_M
    batch = (tl.program_id(0) // tiles).to(INDEX)
    tile = tl.program_id(0) % tiles
    p = (tile // tiles_M).to(INDEX) * BLOCK_P + tl.arange(0, BLOCK_P)
    m = (tile % tiles_M).to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M)
    norm = number(norm_bits, COMPUTE)
    inside = (p < P)[:, None] & (m < M)[None, :]
    x1_at = x1_ptr + offset_of(batch, batch_shape, x1_batch_strides)
    x2_at = x2_ptr + offset_of(batch, batch_shape, x2_batch_strides)
    grad_at = grad_ptr + offset_of(batch, batch_shape, grad_batch_strides)
    distance_at = distance_ptr + offset_of(batch, batch_shape, distance_batch_strides)
    x1_PM = tl.load(x1_at + p[:, None] * x1_strides[0] + m[None, :] * x1_strides[1], mask=inside, other=0).to(COMPUTE)
    result_PM = tl.zeros([BLOCK_P, BLOCK_M], COMPUTE)
    for step in range(steps):
        r = step * BLOCK_R + tl.arange(0, BLOCK_R).to(INDEX)
        x2_inside = (r < R)[:, None] & (m < M)[None, :]
        x2_RM = tl.load(x2_at + r[:, None] * x2_strides[0] + m[None, :] * x2_strides[1], mask=x2_inside, other=0)
        of_pair = (p < P)[:, None] & (r < R)[None, :]
        if PAIRS:
            of_pair = of_pair & (p[:, None] != r[None, :])
            low, high = tl.minimum(p[:, None], r[None, :]), tl.maximum(p[:, None], r[None, :])
            pair = pair_of(low, high, P)
            grad_PR = tl.load(grad_at + pair * grad_strides[1], mask=of_pair, other=0).to(COMPUTE)
            distance_PR = tl.load(distance_at + pair * distance_strides[1], mask=of_pair, other=0).to(COMPUTE)
        else:
            grad_PR = grad_at + p[:, None] * grad_strides[0] + r[None, :] * grad_strides[1]
            grad_PR = tl.load(grad_PR, mask=of_pair, other=0).to(COMPUTE)
            distance_PR = distance_at + p[:, None] * distance_strides[0] + r[None, :] * distance_strides[1]
            distance_PR = tl.load(distance_PR, mask=of_pair, other=0).to(COMPUTE)
        difference_PRM = x1_PM[:, None, :] - x2_RM.to(COMPUTE)[None, :, :]
        slope_PRM = slope_of(difference_PRM, distance_PR[:, :, None], norm, NORM)
        result_PM += tl.sum(tl.where(of_pair[:, :, None], grad_PR[:, :, None] * slope_PRM, 0.0), axis=1)
    at_PM = (batch * P + p[:, None]) * M + m[None, :]
    tl.store(out_ptr + at_PM, converted(result_PM, out_ptr.dtype.element_ty), mask=inside)


def _kind_of(norm: float) -> int:
    exact = {1.0: ONE, 2.0: TWO, math.inf: INFINITE}
    kind = exact.get(norm, BELOW_TWO if norm < 2 else ABOVE_TWO)
    return int(kind.value)


def _gradient(
    out: torch.Tensor,
    grad: torch.Tensor,
    x1: torch.Tensor,
    x2: torch.Tensor,
    distance: torch.Tensor,
    rows: Rows,
    norm: float,
    *,
    pairs: bool,
) -> None:
    """Write the gradient of ``x1``; ``grad`` and ``distance`` have the batch's shape and two dimensions."""
    P, R, M = rows.sizes
    dims = range(len(rows.shape) - 1, -1, -1)
    strides = [expanded_strides((tuple(x.shape[:-2]), x.stride()[:-2]), rows.shape) for x in (x1, x2, grad, distance)]
    batch = merge_dims(rows.shape, strides, dims)
    block_p, block_m, block_r = _blocks(P, M, R, 4096)
    compute = compute_type(x1.dtype)
    launch(
        distance_gradient_kernel,
        (rows.batches * triton.cdiv(P, block_p) * triton.cdiv(M, block_m),),
        x1.device,
        out,
        grad,
        x1,
        x2,
        distance,
        batch.shape_D,
        *batch.strides_ID,
        x1.stride()[-2:],
        x2.stride()[-2:],
        grad.stride()[-2:],
        distance.stride()[-2:],
        rows.sizes,
        number_bits(norm, compute),
        loop_bound(triton.cdiv(R, block_r)),
        NORM=_kind_of(norm),
        COMPUTE=compute,
        PAIRS=pairs,
        INDEX=rows.index_type(x1, x2, grad, distance, out),
        BLOCK_P=block_p,
        BLOCK_R=block_r,
        BLOCK_M=block_m,
        num_warps=8,
    )


def cdist_backward(
    grad: torch.Tensor, x1: torch.Tensor, x2: torch.Tensor, p: float, cdist: torch.Tensor
) -> torch.Tensor:
    """The gradient of ``x1``, expanded to the batch, given that of the distances ``cdist[.., P, R]``.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: two types.
    """
    require_served(grad, x1, x2, cdist, dtypes=FLOATS)
    rows = Rows.of(x1, x2)
    pairs = (*rows.shape, *rows.sizes[:2])
    if tuple(grad.shape) != pairs or tuple(cdist.shape) != pairs:
        raise ValueError(f"the distances have shape {list(pairs)}, not {list(grad.shape)} and {list(cdist.shape)}")
    if 0 in (*pairs, rows.sizes[2]):
        out = torch.empty(x1.shape, dtype=x1.dtype, device=x1.device)
        fill(out, 0)
        return out
    out = torch.empty((*rows.shape, *x1.shape[-2:]), dtype=x1.dtype, device=x1.device)
    if p == 0:
        fill(out, 0)
    else:
        _gradient(out, grad, x1, x2, cdist, rows, float(p), pairs=False)
    return out


def pdist_backward(grad: torch.Tensor, self: torch.Tensor, p: float, pdist: torch.Tensor) -> torch.Tensor:
    """The gradient of ``self[N, M]``, given that of the distances ``pdist``.

    Raises:
        ValueError: shapes that do not fit.
    """
    require_served(grad, self, pdist, dtypes=FLOATS)
    N = self.shape[0]
    if self.ndim != 2 or grad.shape != pdist.shape or tuple(pdist.shape) != (N * (N - 1) // 2,):
        raise ValueError(f"{list(grad.shape)} and {list(pdist.shape)} are not of the pairs of {N} rows")
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    if not pdist.numel() or p == 0:
        fill(out, 0)
    elif out.numel():
        vectors = grad.unsqueeze(0), pdist.unsqueeze(0)
        _gradient(out, vectors[0], self, self, vectors[1], Rows.of(self, self), float(p), pairs=True)
    return out
