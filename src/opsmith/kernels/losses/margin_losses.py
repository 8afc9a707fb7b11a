"""Losses that want the target's score to lead by a margin: multi_margin_loss, multilabel_margin_loss, their gradients.

A program owns rows ``x[n, :]``, one of them where a row has several targets. The forward ops write the loss of each
row, ``numel * itemsize`` bytes read, which a second launch adds up where a mean or sum is asked for; the gradients
read the row and write as much.

Suffixes: ``_N`` rows, ``_C`` classes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Geometry, converted, index_type, number
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..reductions.reductions import MEAN, SUM, fold
from .losses import Reduction

#: Classes of a row with several targets, which a program holds in registers.
MOST_CLASSES = 1 << 14

# ---------------------------------------------------------------- one target


@triton.jit
def hinge_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    target_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    x_stride_N: tl.tensor,
    x_stride_C: tl.tensor,
    target_stride: tl.tensor,
    weight_stride: tl.tensor,
    rows: tl.tensor,
    classes: tl.tensor,
    margin_bits: tl.tensor,
    steps: tl.tensor,
    SQUARED: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """``out[n] = weight[t] / classes * sum over c != t of max(0, margin - x[n, t] + x[n, c])^p``, ``t = target[n]``."""
    pdl_prologue()
    n = tl.program_id(0).to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)
    margin = number(margin_bits, COMPUTE)[:, None]
    t_N = tl.load(target_ptr + n * target_stride, mask=n < rows, other=0)
    there_N = (n < rows) & (t_N >= 0) & (t_N < classes)
    x_N = x_ptr + n * x_stride_N
    own_N = tl.load(x_N + t_N.to(INDEX) * x_stride_C, mask=there_N, other=0).to(COMPUTE)
    sum_NC = tl.zeros([BLOCK_N, BLOCK_C], COMPUTE)
    for step in range(steps):
        c = step * BLOCK_C + tl.arange(0, BLOCK_C)
        inside = there_N[:, None] & (c < classes)[None, :]
        x_NC = tl.load(x_N[:, None] + (c.to(INDEX) * x_stride_C)[None, :], mask=inside, other=0).to(COMPUTE)
        lead_NC = margin - own_N[:, None] + x_NC
        loss_NC = lead_NC * lead_NC if SQUARED else lead_NC
        sum_NC += tl.where(inside & (c[None, :] != t_N[:, None]) & (lead_NC > 0), loss_NC, 0.0)
    loss_N = tl.sum(sum_NC, axis=1) / classes
    if weight_ptr is not None:
        loss_N *= tl.load(weight_ptr + t_N * weight_stride, mask=there_N, other=0).to(COMPUTE)
    tl.store(out_ptr + n, converted(loss_N, out_ptr.dtype.element_ty), mask=n < rows)


@triton.jit
def hinge_gradient_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    x_ptr: tl.tensor,
    target_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    grad_stride: tl.tensor,
    x_stride_N: tl.tensor,
    x_stride_C: tl.tensor,
    target_stride: tl.tensor,
    weight_stride: tl.tensor,
    rows: tl.tensor,
    classes: tl.tensor,
    margin_bits: tl.tensor,
    scale_bits: tl.tensor,
    steps: tl.tensor,
    SQUARED: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each class pushes its own score, and the target's the other way, which is written once the row has been read."""
    pdl_prologue()
    n = tl.program_id(0).to(INDEX) * BLOCK_N + tl.arange(0, BLOCK_N)
    margin = number(margin_bits, COMPUTE)[:, None]
    t_N = tl.load(target_ptr + n * target_stride, mask=n < rows, other=0)
    there_N = (n < rows) & (t_N >= 0) & (t_N < classes)
    x_N = x_ptr + n * x_stride_N
    own_N = tl.load(x_N + t_N.to(INDEX) * x_stride_C, mask=there_N, other=0).to(COMPUTE)
    factor_N = tl.load(grad_ptr + n * grad_stride, mask=n < rows, other=0).to(COMPUTE) * number(scale_bits, COMPUTE)
    if weight_ptr is not None:
        factor_N *= tl.load(weight_ptr + t_N * weight_stride, mask=there_N, other=0).to(COMPUTE)
    sum_NC = tl.zeros([BLOCK_N, BLOCK_C], COMPUTE)
    for step in range(steps):
        c = step * BLOCK_C + tl.arange(0, BLOCK_C)
        inside = (n < rows)[:, None] & (c < classes)[None, :]
        x_NC = tl.load(x_N[:, None] + (c.to(INDEX) * x_stride_C)[None, :], mask=inside, other=0).to(COMPUTE)
        lead_NC = margin - own_N[:, None] + x_NC
        push_NC = 2.0 * lead_NC * factor_N[:, None] if SQUARED else factor_N[:, None]
        other_NC = inside & (c[None, :] != t_N[:, None])
        push_NC = tl.where(other_NC & (lead_NC > 0), push_NC, 0.0)
        sum_NC += push_NC
        out_NC = out_ptr + n[:, None] * classes + c[None, :]
        tl.store(out_NC, converted(push_NC, out_ptr.dtype.element_ty), mask=other_NC)
    own_N = converted(-tl.sum(sum_NC, axis=1), out_ptr.dtype.element_ty)
    tl.store(out_ptr + n * classes + t_N.to(INDEX), own_N, mask=there_N)


def _rows_of(x: torch.Tensor) -> torch.Tensor:
    """``x`` as ``[N, C]``."""
    return x if x.ndim == 2 else x.view(1, 1) if x.ndim == 0 else x.unsqueeze(0)


def _require_margin(
    x: torch.Tensor, target: torch.Tensor, p: float, weight: torch.Tensor | None, *, sizes: tuple[int, ...]
) -> None:
    """Refuse what eager refuses.

    Raises:
        ValueError: a power that is neither 1 nor 2, or shapes that do not match.
        TypeError: a target that holds no classes.
    """
    require_served(x, weight, dtypes=FLOATS)
    require_served(target)
    if p not in (1, 2):
        raise ValueError(f"p is 1 or 2, not {p}")
    if target.dtype != torch.int64:
        raise TypeError(f"the targets are int64, not {target.dtype}")
    if x.ndim > 2 or x.shape[-1:].numel() == 0 or target.numel() != sizes[0] or target.ndim > 1:
        raise ValueError(f"the input has shape {list(x.shape)} and the target {list(target.shape)}")
    if weight is not None and (weight.numel() != sizes[1] or weight.dtype != x.dtype):
        raise ValueError(f"the weight has shape {list(weight.shape)} and there are {sizes[1]} classes")


def _blocks(rows: int, classes: int) -> dict[str, int]:
    tile = INTERPRETED_TILE if INTERPRETED else 2048
    block_c = min(triton.next_power_of_2(classes), tile)
    return {"BLOCK_N": min(triton.next_power_of_2(max(rows, 1)), tile // block_c), "BLOCK_C": block_c}


def _index(x: torch.Tensor) -> tl.dtype:
    return index_type(Geometry(tuple(x.shape), (x.stride(),)), Geometry((x.numel(),), ((1,),)))


def multi_margin_loss(
    self: torch.Tensor,
    target: torch.Tensor,
    p: float = 1,
    margin: float = 1,
    weight: torch.Tensor | None = None,
    reduction: int = Reduction.MEAN,
) -> torch.Tensor:
    """How far each row's other scores come within ``margin`` of its target's, to the power ``p``, over the classes."""
    x_NC = _rows_of(self)
    rows, classes = x_NC.shape
    _require_margin(self, target, p, weight, sizes=(rows, classes))
    whole = reduction == Reduction.NONE
    dtype = self.dtype if whole else compute_dtype(self.dtype)
    out = torch.empty(target.shape if whole else (rows,), dtype=dtype, device=self.device)
    blocks = _blocks(rows, classes)
    compute = compute_type(self.dtype)
    if rows:
        launch(
            hinge_kernel,
            (triton.cdiv(rows, blocks["BLOCK_N"]),),
            self.device,
            out,
            x_NC,
            target,
            weight,
            *x_NC.stride(),
            target.stride(0) if target.ndim else 0,
            weight.stride(0) if weight is not None and weight.ndim else 0,
            rows,
            classes,
            number_bits(margin, compute),
            loop_bound(triton.cdiv(classes, blocks["BLOCK_C"])),
            SQUARED=p == 2,
            COMPUTE=compute,
            INDEX=_index(x_NC),
            **blocks,
        )
    return out if whole else _reduced(out, reduction, self.dtype)


def _reduced(losses: torch.Tensor, reduction: int, dtype: torch.dtype) -> torch.Tensor:
    """The sum of the rows' losses, or their mean."""
    steps = MEAN if reduction == Reduction.MEAN else SUM
    return fold(losses, {0}, False, steps, result=dtype, read=losses.dtype, parameter=losses.numel())


def multi_margin_loss_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    p: float,
    margin: float,
    weight: torch.Tensor | None = None,
    reduction: int = Reduction.MEAN,
) -> torch.Tensor:
    """The gradient of :func:`multi_margin_loss`."""
    x_NC = _rows_of(self)
    rows, classes = x_NC.shape
    _require_margin(self, target, p, weight, sizes=(rows, classes))
    require_served(grad_output, dtypes=FLOATS)
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    blocks = _blocks(rows, classes)
    compute = compute_type(self.dtype)
    scale = 1.0 / (classes * rows if reduction == Reduction.MEAN else classes)
    if rows:
        launch(
            hinge_gradient_kernel,
            (triton.cdiv(rows, blocks["BLOCK_N"]),),
            self.device,
            out,
            grad_output,
            x_NC,
            target,
            weight,
            grad_output.stride(0) if reduction == Reduction.NONE and grad_output.ndim else 0,
            *x_NC.stride(),
            target.stride(0) if target.ndim else 0,
            weight.stride(0) if weight is not None and weight.ndim else 0,
            rows,
            classes,
            number_bits(margin, compute),
            number_bits(scale, compute),
            loop_bound(triton.cdiv(classes, blocks["BLOCK_C"])),
            SQUARED=p == 2,
            COMPUTE=compute,
            INDEX=_index(x_NC),
            **blocks,
        )
    return out


# ---------------------------------------------------------------- several targets


@triton.jit
def targets_kernel(
    out_ptr: tl.tensor,
    is_target_ptr: tl.tensor,
    x_ptr: tl.tensor,
    target_ptr: tl.tensor,
    x_stride_N: tl.tensor,
    x_stride_C: tl.tensor,
    target_stride_N: tl.tensor,
    target_stride_C: tl.tensor,
    classes: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """``sum over targets t, others c of max(0, 1 - x[t] + x[c]) / classes``; a negative target ends the list."""
    pdl_prologue()
    n = tl.program_id(0).to(INDEX)
    c = tl.arange(0, BLOCK_C)
    x_C = tl.load(x_ptr + n * x_stride_N + c.to(INDEX) * x_stride_C, mask=c < classes, other=0).to(COMPUTE)
    targets = target_ptr + n * target_stride_N
    t_C = tl.load(targets + c.to(INDEX) * target_stride_C, mask=c < classes, other=-1)
    count = tl.min(tl.where((t_C < 0) | (c >= classes), c, classes), axis=0)
    is_target_C = tl.zeros([BLOCK_C], tl.int32)
    j = 0
    while j < count:
        is_target_C |= (c == tl.load(targets + j * target_stride_C)).to(tl.int32)
        j += 1
    sum_C = tl.zeros([BLOCK_C], COMPUTE)
    j = 0
    while j < count:
        own = tl.sum(tl.where(c == tl.load(targets + j * target_stride_C), x_C, 0.0), axis=0)
        lead_C = 1.0 - own + x_C
        sum_C += tl.where((c < classes) & (is_target_C == 0) & (lead_C > 0), lead_C, 0.0)
        j += 1
    one = n + tl.arange(0, 1)
    loss = tl.sum(sum_C, axis=0) / classes + tl.zeros([1], COMPUTE)
    tl.store(out_ptr + one, converted(loss, out_ptr.dtype.element_ty))
    tl.store(is_target_ptr + n * classes + c, is_target_C.to(is_target_ptr.dtype.element_ty), mask=c < classes)


@triton.jit
def targets_gradient_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    x_ptr: tl.tensor,
    target_ptr: tl.tensor,
    is_target_ptr: tl.tensor,
    grad_stride: tl.tensor,
    x_stride_N: tl.tensor,
    x_stride_C: tl.tensor,
    target_stride_N: tl.tensor,
    target_stride_C: tl.tensor,
    is_target_stride_N: tl.tensor,
    is_target_stride_C: tl.tensor,
    classes: tl.tensor,
    scale_bits: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each pair that counts pushes its other class by ``scale * grad`` and its target the other way."""
    pdl_prologue()
    n = tl.program_id(0).to(INDEX)
    c = tl.arange(0, BLOCK_C)
    x_C = tl.load(x_ptr + n * x_stride_N + c.to(INDEX) * x_stride_C, mask=c < classes, other=0).to(COMPUTE)
    is_target_C = is_target_ptr + n * is_target_stride_N + c.to(INDEX) * is_target_stride_C
    other_C = (c < classes) & (tl.load(is_target_C, mask=c < classes, other=1) == 0)
    targets = target_ptr + n * target_stride_N
    t_C = tl.load(targets + c.to(INDEX) * target_stride_C, mask=c < classes, other=-1)
    count = tl.min(tl.where((t_C < 0) | (c >= classes), c, classes), axis=0)
    pushes_C = tl.zeros([BLOCK_C], tl.int32)
    j = 0
    while j < count:
        here_C = c == tl.load(targets + j * target_stride_C)
        own = tl.sum(tl.where(here_C, x_C, 0.0), axis=0)
        pushed_C = (other_C & (1.0 - own + x_C > 0)).to(tl.int32)
        pushes_C += pushed_C - tl.where(here_C, tl.sum(pushed_C, axis=0), 0)
        j += 1
    factor = tl.load(grad_ptr + n * grad_stride + tl.arange(0, 1)).to(COMPUTE) * number(scale_bits, COMPUTE)
    out_C = converted(pushes_C.to(COMPUTE) * factor, out_ptr.dtype.element_ty)
    tl.store(out_ptr + n * classes + c, out_C, mask=c < classes)


def _require_targets(x: torch.Tensor, target: torch.Tensor) -> None:
    """Refuse what eager refuses.

    Raises:
        TypeError: a target that holds no classes.
        ValueError: shapes that do not match.
        NotImplementedError: more classes than registers hold.
    """
    require_served(x, dtypes=FLOATS)
    require_served(target)
    if target.dtype != torch.int64:
        raise TypeError(f"the targets are int64, not {target.dtype}")
    if x.ndim > 2 or target.shape != x.shape or not x.shape[-1:].numel():
        raise ValueError(f"the input has shape {list(x.shape)} and the target {list(target.shape)}")
    if x.shape[-1:].numel() > MOST_CLASSES:
        raise NotImplementedError(f"more than {MOST_CLASSES} classes are not served")


def multilabel_margin_loss_forward(
    self: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """How far each row's other scores come within 1 of its targets', over the classes; and which are targets."""
    _require_targets(self, target)
    x_NC, target_NC = _rows_of(self), _rows_of(target)
    rows, classes = x_NC.shape
    is_target = torch.empty(target.shape, dtype=self.dtype, device=self.device)
    whole = reduction == Reduction.NONE
    dtype = self.dtype if whole else compute_dtype(self.dtype)
    shape = self.shape[:1] if whole and self.ndim == 2 else () if whole else (rows,)
    out = torch.empty(shape, dtype=dtype, device=self.device)
    if rows:
        launch(
            targets_kernel,
            (rows,),
            self.device,
            out,
            is_target,
            x_NC,
            target_NC,
            *x_NC.stride(),
            *target_NC.stride(),
            classes,
            COMPUTE=compute_type(self.dtype),
            INDEX=_index(x_NC),
            BLOCK_C=triton.next_power_of_2(classes),
        )
    return (out if whole else _reduced(out, reduction, self.dtype)), is_target


def multilabel_margin_loss_backward(
    grad_output: torch.Tensor, self: torch.Tensor, target: torch.Tensor, reduction: int, is_target: torch.Tensor
) -> torch.Tensor:
    """The gradient of :func:`multilabel_margin_loss_forward`."""
    _require_targets(self, target)
    require_served(grad_output, is_target, dtypes=FLOATS)
    x_NC, target_NC, is_target_NC = _rows_of(self), _rows_of(target), _rows_of(is_target)
    rows, classes = x_NC.shape
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    scale = 1.0 / (classes * rows if reduction == Reduction.MEAN else classes) if rows else 0.0
    if rows:
        launch(
            targets_gradient_kernel,
            (rows,),
            self.device,
            out,
            grad_output,
            x_NC,
            target_NC,
            is_target_NC,
            grad_output.stride(0) if reduction == Reduction.NONE and grad_output.ndim else 0,
            *x_NC.stride(),
            *target_NC.stride(),
            *is_target_NC.stride(),
            classes,
            number_bits(scale, compute_type(self.dtype)),
            COMPUTE=compute_type(self.dtype),
            INDEX=_index(x_NC),
            BLOCK_C=triton.next_power_of_2(classes),
        )
    return out
