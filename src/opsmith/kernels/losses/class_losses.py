"""Losses of a target class: the negative log-likelihood (nll_loss, nll_loss2d) and its gradient.

The input ``x[n, c, p]`` holds a score for each class c at each position p of sample n, the target ``t[n, p]`` the class
that is right. The loss reads one score a target: as many 32-byte sectors as there are targets, and the targets.
Reduced, each program adds up what it meets, and a second launch the programs' sums. The gradient is zero but at
the target: it is written once, ``numel * itemsize`` bytes.

A target out of range, for which eager stops the device, counts as ignored.

Suffixes: ``_T`` targets, ``_NJ`` samples and the rest of a tile.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, store_dense
from ..common.indexing import Geometry, converted, index_type, merge_dims, offset_of
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    multiprocessors,
    pdl_prologue,
    require_served,
)
from .losses import Reduction

#: Targets that a program looks at at a time.
BLOCK = 1024
_NONE, _MEAN = tl.constexpr(int(Reduction.NONE)), tl.constexpr(int(Reduction.MEAN))

# ---------------------------------------------------------------- the kernels


@triton.jit
def likelihood_kernel(
    out_ptr: tl.tensor,
    weight_sum_ptr: tl.tensor,
    x_ptr: tl.tensor,
    target_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    shape_D: tl.tuple,
    x_strides_D: tl.tuple,
    target_strides_D: tl.tuple,
    x_stride_C: tl.tensor,
    weight_stride: tl.tensor,
    targets: tl.tensor,
    classes: tl.tensor,
    ignored: tl.tensor,
    steps: tl.tensor,
    REDUCTION: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``-weight[t] x[t]`` of each target t, or for each program their sum or mean, and the sum of the weights."""
    pdl_prologue()
    sum_T = tl.zeros([BLOCK], COMPUTE)
    weight_sum_T = tl.zeros([BLOCK], COMPUTE)
    for step in range(steps):
        i = (tl.program_id(0) + step * tl.num_programs(0)).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
        c = tl.load(target_ptr + offset_of(i, shape_D, target_strides_D), mask=i < targets, other=-1)
        counts = (i < targets) & (c != ignored) & (c >= 0) & (c < classes)
        c = c.to(INDEX)
        x_T = tl.load(x_ptr + offset_of(i, shape_D, x_strides_D) + c * x_stride_C, mask=counts, other=0).to(COMPUTE)
        if weight_ptr is None:
            weight_T = counts.to(COMPUTE)
        else:
            weight_T = tl.load(weight_ptr + c * weight_stride, mask=counts, other=0).to(COMPUTE)
        loss_T = tl.where(counts, -weight_T * x_T, 0.0)
        if REDUCTION == _NONE:
            tl.store(out_ptr + i, converted(loss_T, out_ptr.dtype.element_ty), mask=i < targets)
        else:
            sum_T += loss_T
            weight_sum_T += weight_T
    one = tl.program_id(0) + tl.arange(0, 1)
    if REDUCTION == _NONE:
        tl.store(weight_sum_ptr + one, tl.zeros([1], weight_sum_ptr.dtype.element_ty), mask=one == 0)
    else:
        store_total(out_ptr, weight_sum_ptr, one, tl.sum(sum_T, axis=0), tl.sum(weight_sum_T, axis=0), REDUCTION)


@triton.jit
def store_total(
    out_ptr: tl.tensor,
    weight_sum_ptr: tl.tensor,
    one: tl.tensor,
    total: tl.tensor,
    weight_sum: tl.tensor,
    REDUCTION: tl.constexpr,
) -> None:
    """A sum and its weight to place ``one``; the mean, if that is asked for."""
    total += tl.zeros_like(one).to(total.dtype)
    weight_sum += tl.zeros_like(one).to(total.dtype)
    if REDUCTION == _MEAN:
        total = total / weight_sum
    tl.store(out_ptr + one, converted(total, out_ptr.dtype.element_ty))
    tl.store(weight_sum_ptr + one, converted(weight_sum, weight_sum_ptr.dtype.element_ty))


@triton.jit
def finish_kernel(
    out_ptr: tl.tensor,
    weight_sum_ptr: tl.tensor,
    sums_ptr: tl.tensor,
    weight_sums_ptr: tl.tensor,
    count: tl.tensor,
    REDUCTION: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """The sums of all programs, the first divided by the second for a mean."""
    pdl_prologue()
    i = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(sums_ptr + i, mask=i < count, other=0), axis=0)
    weight_sum = tl.sum(tl.load(weight_sums_ptr + i, mask=i < count, other=0), axis=0)
    store_total(out_ptr, weight_sum_ptr, tl.arange(0, 1), total, weight_sum, REDUCTION)


@triton.jit
def likelihood_gradient_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    target_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    weight_sum_ptr: tl.tensor,
    shape_P: tl.tuple,
    grad_strides_P: tl.tuple,
    target_strides_P: tl.tuple,
    grad_stride_N: tl.tensor,
    target_stride_N: tl.tensor,
    weight_stride: tl.tensor,
    samples: tl.tensor,
    classes: tl.tensor,
    positions: tl.tensor,
    ignored: tl.tensor,
    REDUCTION: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_J: tl.constexpr,
) -> None:
    """``out[n, c, p] = -weight[c] grad[n, p]`` where c is the target, over the sum of weights for a mean; else 0."""
    pdl_prologue()
    tiles_J = tl.cdiv(classes * positions, BLOCK_J)
    n = (tl.program_id(0) // tiles_J).to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)
    j = (tl.program_id(0) % tiles_J).to(INDEX) * BLOCK_J + tl.arange(0, BLOCK_J)
    c, p = j // positions, j % positions
    inside = (n < samples)[:, None] & (c < classes)[None, :]
    target_NJ = (n * target_stride_N)[:, None] + offset_of(p, shape_P, target_strides_P)[None, :]
    target_NJ = tl.load(target_ptr + target_NJ, mask=inside, other=-1)
    hit_NJ = inside & (target_NJ == c[None, :]) & (target_NJ != ignored)
    grad_NJ = (n * grad_stride_N)[:, None] + offset_of(p, shape_P, grad_strides_P)[None, :]
    grad_NJ = -tl.load(grad_ptr + grad_NJ, mask=hit_NJ, other=0).to(COMPUTE)
    if weight_ptr is not None:
        weight_J = tl.load(weight_ptr + c * weight_stride, mask=c < classes, other=0).to(COMPUTE)
        grad_NJ = grad_NJ * weight_J[None, :]
    if REDUCTION == _MEAN:
        grad_NJ = grad_NJ / tl.load(weight_sum_ptr + tl.arange(0, 1))[None, :].to(COMPUTE)
    at_NJ = n[:, None] * (classes * positions) + j[None, :]
    tl.store(out_ptr + at_NJ, converted(tl.where(hit_NJ, grad_NJ, 0.0), out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def target_gradient(
    n: tl.tensor,
    grad_ptr: tl.tensor,
    target_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    weight_sum_ptr: tl.tensor,
    grad_stride: tl.tensor,
    target_stride: tl.tensor,
    weight_stride: tl.tensor,
    samples: tl.tensor,
    classes: tl.tensor,
    ignored: tl.tensor,
    REDUCTION: tl.constexpr,
    COMPUTE: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Which element of a dense ``[samples, classes]`` is sample n's target, -1 if none is, and its gradient."""
    c = tl.load(target_ptr + n * target_stride, mask=n < samples, other=-1)
    counts = (n < samples) & (c >= 0) & (c < classes) & (c != ignored)
    c = c.to(n.dtype)
    gradient = -tl.load(grad_ptr + n * grad_stride, mask=counts, other=0).to(COMPUTE)
    if weight_ptr is not None:
        gradient = gradient * tl.load(weight_ptr + c * weight_stride, mask=counts, other=0).to(COMPUTE)
    if REDUCTION == _MEAN:
        gradient = gradient / tl.load(weight_sum_ptr).to(COMPUTE)
    return tl.where(counts, n * classes + c, -1), gradient


@triton.jit
def long_rows_gradient_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    target_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    weight_sum_ptr: tl.tensor,
    grad_stride: tl.tensor,
    target_stride: tl.tensor,
    weight_stride: tl.tensor,
    samples: tl.tensor,
    classes: tl.tensor,
    ignored: tl.tensor,
    numel: tl.tensor,
    REDUCTION: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """As :func:`likelihood_gradient_kernel` of one position, for a stretch of memory that is no longer than a row.

    A stretch begins at a multiple of 16 bytes whatever the length of a row, and holds two rows' targets at most.
    """
    pdl_prologue()
    first = tl.program_id(0).to(INDEX) * BLOCK
    n = first // classes
    pointers = (grad_ptr, target_ptr, weight_ptr, weight_sum_ptr)
    sizes = (grad_stride, target_stride, weight_stride, samples, classes, ignored)
    place, gradient = target_gradient(n, *pointers, *sizes, REDUCTION, COMPUTE)
    next_place, next_gradient = target_gradient(n + 1, *pointers, *sizes, REDUCTION, COMPUTE)
    element = out_ptr.dtype.element_ty
    i = first + tl.arange(0, BLOCK)
    out = tl.where(i == place, converted(gradient, element), tl.zeros([BLOCK], element))
    out = tl.where(i == next_place, converted(next_gradient, element), out)
    store_dense(out_ptr + i, out, i < numel, first + BLOCK <= numel, True)


# ---------------------------------------------------------------- the host side


def _require_target(self: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> None:
    """Refuse what eager refuses.

    Raises:
        TypeError: a target that holds no classes, or a weight of another type than the input.
        ValueError: shapes that do not match.
    """
    require_served(self, weight, dtypes=FLOATS)
    require_served(target)
    if target.dtype not in (torch.int64, torch.uint8):
        raise TypeError(f"the targets are int64 or uint8, not {target.dtype}")
    if weight is not None and weight.dtype != self.dtype:
        raise TypeError(f"the weight is of {weight.dtype} and the input of {self.dtype}")
    batch = self.shape[: self.ndim - target.ndim] if self.ndim == 1 else (*self.shape[:1], *self.shape[2:])
    if self.ndim not in (1, 2, 4) or (tuple(target.shape) != tuple(batch) and target.numel() + self.ndim > 2):
        raise ValueError(f"the input has shape {list(self.shape)} and the target {list(target.shape)}")
    classes = self.shape[0 if self.ndim == 1 else 1]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ValueError(f"the weight has shape {list(weight.shape)} and there are {classes} classes")


def _span(tensor: torch.Tensor) -> Geometry:
    return merge_dims(tuple(tensor.shape), [tensor.stride()], range(tensor.ndim))


# ---------------------------------------------------------------- the ops


def nll_loss_forward(
    self: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of ``self``, ``[C]``, ``[N, C]`` or ``[N, C, H, W]``, and the sum of weights (0 if not reduced)."""
    _require_target(self, target, weight)
    axis = 0 if self.ndim == 1 else 1
    kept = [d for d in range(self.ndim) if d != axis]
    shape = tuple(self.shape[d] for d in kept)
    if self.ndim == 1 and reduction == Reduction.NONE:
        reduction = Reduction.SUM  # Of one target, as in eager: with its weight.
    reduced = reduction != Reduction.NONE
    out = torch.empty(() if reduced else shape, dtype=self.dtype, device=self.device)
    weight_sum = torch.empty((), dtype=self.dtype, device=self.device)
    own_strides = tuple(self.stride(d) for d in kept)
    geometry = merge_dims(shape, [own_strides, target.stride() if kept else ()], reversed(range(len(shape))))
    count = geometry.numel()
    blocks = triton.cdiv(count, BLOCK)
    # Fewer blocks than a launch takes the time of are one program's work.
    programs = max(blocks, 1) if not reduced else 1 if blocks <= 4 else min(blocks, multiprocessors(self.device))
    sums, weight_sums = out, weight_sum
    if reduced and programs > 1:
        compute = compute_dtype(self.dtype)
        sums, weight_sums = (torch.empty(programs, dtype=compute, device=self.device) for _ in range(2))
    launch(
        likelihood_kernel,
        (programs,),
        self.device,
        sums,
        weight_sums,
        self,
        target,
        weight,
        geometry.shape_D,
        *geometry.strides_ID,
        self.stride(axis),
        weight.stride(0) if weight is not None else 0,
        count,
        self.shape[axis],
        ignore_index,
        loop_bound(triton.cdiv(blocks, programs) if reduced else 1),
        REDUCTION=int(Reduction.SUM if programs > 1 and reduced else reduction),
        COMPUTE=compute_type(self.dtype),
        INDEX=index_type(geometry, Geometry((self.shape[axis],), ((self.stride(axis),),))),
        BLOCK=BLOCK,
    )
    if reduced and programs > 1:
        block = triton.next_power_of_2(programs)
        arguments = (out, weight_sum, sums, weight_sums, programs)
        launch(finish_kernel, (1,), self.device, *arguments, REDUCTION=int(reduction), BLOCK=block)
    return out, weight_sum


def nll_loss_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    """The gradient of :func:`nll_loss_forward`."""
    _require_target(self, target, weight)
    require_served(grad_output, total_weight, dtypes=FLOATS)
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    if not out.numel():
        return out
    batched = self.ndim > 1
    samples, classes = (self.shape[0], self.shape[1]) if batched else (1, self.shape[0])
    positions = tuple(self.shape[2:])
    grad = grad_output
    if reduction != Reduction.NONE:
        if grad.numel() != 1:
            raise ValueError(f"the gradient of a number has one element, not shape {list(grad.shape)}")
        grad = grad.view(()).expand(target.shape)
    elif tuple(grad.shape) != tuple(target.shape) and batched:
        raise ValueError(f"the gradient has shape {list(grad.shape)} and the target {list(target.shape)}")
    strides = [tensor.stride()[1:] if batched else () for tensor in (grad, target)]
    outer_strides = (
        grad.stride(0) if batched else 0,
        target.stride(0) if batched else 0,
        weight.stride(0) if weight is not None else 0,
    )
    geometry = merge_dims(positions, strides, reversed(range(len(positions))))
    columns = classes * geometry.numel()
    tile = INTERPRETED_TILE if INTERPRETED else 4096
    options: dict[str, Any] = {
        "REDUCTION": int(reduction),
        "COMPUTE": compute_type(self.dtype),
        "INDEX": index_type(geometry, Geometry((self.numel(),), ((1,),)), _span(grad), _span(target)),
    }
    pointers = (out, grad, target, weight, total_weight)
    if columns == classes >= tile:
        programs = triton.cdiv(out.numel(), tile)
        arguments = (*pointers, *outer_strides, samples, classes, ignore_index, out.numel())
        launch(long_rows_gradient_kernel, (programs,), self.device, *arguments, BLOCK=tile, **options)
        return out
    block_j = min(triton.next_power_of_2(columns), tile)
    block_n = min(triton.next_power_of_2(samples), tile // block_j)
    launch(
        likelihood_gradient_kernel,
        (triton.cdiv(samples, block_n) * triton.cdiv(columns, block_j),),
        self.device,
        *pointers,
        geometry.shape_D,
        *geometry.strides_ID,
        *outer_strides,
        samples,
        classes,
        geometry.numel(),
        ignore_index,
        BLOCK_N=block_n,
        BLOCK_J=block_j,
        num_warps=8 if block_n * block_j > 2048 else 4,
        **options,
    )
    return out
