"""Log-softmax and the gradients of softmax, after FlagGems' ``ops/{softmax,log_softmax}.py``.

The maximum and the sum of a row are found in one pass, block by block with rescaling; a second pass writes.
"""

import torch
import triton
import triton.language as tl

from .rows import tile


def lines(x, dim):
    """A dense matrix of the lines along a dimension, and how to bring such a matrix back."""
    if x.dim() == 0:
        return x.reshape(1, 1), lambda y: y.reshape(())
    moved = x.movedim(dim, -1).contiguous()
    length = moved.shape[-1]
    rows = moved.numel() // length if length else 0
    return moved.view(rows, length), lambda y: y.view(moved.shape).movedim(-1, dim)


@triton.jit
def largest_of(x):
    """The largest number of each row; NaN is the largest."""
    nan = tl.max((x != x).to(tl.int32), axis=1)
    top = tl.max(tl.where(x != x, float("-inf"), x), axis=1)
    return tl.where(nan != 0, float("nan"), top)


@triton.jit
def log_softmax_rows(x_ptr, y_ptr, M, N, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    top = tl.full((TM, TN), float("-inf"), tl.float32)
    total = tl.zeros((TM, TN), tl.float32)
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=float("-inf")).to(tl.float32)
        new = tl.where((x > top) | (x != x), x, top)
        empty = new == float("-inf")
        total = tl.where(empty, total, total * tl.exp(top - new) + tl.exp(x - new))
        top = new
    highest = largest_of(top)
    empty = top == float("-inf")
    scaled = tl.where(empty, 0.0, total * tl.exp(top - highest[:, None]))
    logarithm = tl.log(tl.sum(scaled, axis=1))
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        y = x - highest[:, None] - logarithm[:, None]
        tl.store(y_ptr + rows[:, None] * N + columns[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def log_softmax(self, dim, half_to_float):
    x, back = lines(self, dim)
    M, N = x.shape
    y = torch.empty(x.shape, dtype=torch.float32 if half_to_float else x.dtype, device=x.device)
    TM, TN = tile(M, N)
    if x.numel():
        log_softmax_rows[(triton.cdiv(M, TM),)](x, y, M, N, STEPS=triton.cdiv(N, TN), TM=TM, TN=TN)
    return back(y)


@triton.jit
def gradient_rows(
    dy_ptr, y_ptr, dx_ptr, M, N, LOG: tl.constexpr, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr
):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    total = tl.zeros((TM, TN), tl.float32)
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        dy = tl.load(dy_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        total += dy if LOG else dy * y
    scale = tl.sum(total, axis=1)[:, None]
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        dy = tl.load(dy_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        dx = dy - tl.exp(y) * scale if LOG else y * (dy - scale)
        tl.store(dx_ptr + rows[:, None] * N + columns[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)


def _gradient(grad_output, output, dim, input_dtype, log):
    dy, back = lines(grad_output, dim)
    y, _ = lines(output, dim)
    M, N = y.shape
    dx = torch.empty(y.shape, dtype=input_dtype, device=y.device)
    TM, TN = tile(M, N)
    if y.numel():
        gradient_rows[(triton.cdiv(M, TM),)](dy, y, dx, M, N, LOG=log, STEPS=triton.cdiv(N, TN), TM=TM, TN=TN)
    return back(dx)


def softmax_backward(grad_output, output, dim, input_dtype):
    return _gradient(grad_output, output, dim, input_dtype, False)


def log_softmax_backward(grad_output, output, dim, input_dtype):
    return _gradient(grad_output, output, dim, input_dtype, True)
