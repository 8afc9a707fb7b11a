"""Layer norm and its gradients, after the Triton tutorial ``05-layer-norm.py``.

Forward: two passes over a row for mean and variance, one that writes. Backward: a program for each row gives the
gradient of the input; those of weight and bias are partial sums of groups of rows, which a second kernel adds up.
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    X,
    Y,
    W,
    B,
    Mean,
    Rstd,
    M,
    N,
    eps,
    HAS_W: tl.constexpr,
    HAS_B: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    X += row.to(tl.int64) * N
    Y += row.to(tl.int64) * N
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        cols = step * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        cols = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        squares += x * x
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(Mean + row, mean.to(Mean.dtype.element_ty))
    tl.store(Rstd + row, rstd.to(Rstd.dtype.element_ty))
    for step in range(STEPS):
        cols = step * BLOCK + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * rstd
        if HAS_W:
            y = y * tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
        if HAS_B:
            y = y + tl.load(B + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, y.to(Y.dtype.element_ty), mask=mask)


def native_layer_norm(input, normalized_shape, weight, bias, eps):
    N = math.prod(normalized_shape)
    leading = list(input.shape[: input.dim() - len(normalized_shape)])
    if list(input.shape[len(leading) :]) != list(normalized_shape):
        raise RuntimeError("the shape to be normalized is not the input's")
    x = input.contiguous()
    M = math.prod(leading)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    # On a CPU eager keeps statistics of half types in the type of the input, on a GPU in float32.
    kept = x.dtype if x.device.type == "cpu" else torch.float32
    shape = [*leading, *[1] * len(normalized_shape)]
    mean, rstd = (torch.empty(shape, dtype=kept, device=x.device) for _ in range(2))
    if not N:
        raise NotImplementedError("rows of nothing")
    if M:
        w, b = (x if each is None else each.contiguous() for each in (weight, bias))
        BLOCK = min(1024, triton.next_power_of_2(N))
        forward_kernel[(M,)](
            x, y, w, b, mean, rstd, M, N, eps, HAS_W=weight is not None, HAS_B=bias is not None,
            STEPS=triton.cdiv(N, BLOCK), BLOCK=BLOCK,
        )  # fmt: skip
    return y, mean, rstd


@triton.jit
def backward_kernel(
    DX, DY, DW, DB, X, W, Mean, Rstd, M, N, HAS_W: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    group = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    w = tl.full((BLOCK,), 1.0, tl.float32)
    if HAS_W:
        w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
    for step in range(GROUP):
        row = group * GROUP + step
        here = mask & (row < M)
        x = tl.load(X + row * N + cols, mask=here, other=0.0).to(tl.float32)
        dy = tl.load(DY + row * N + cols, mask=here, other=0.0).to(tl.float32)
        mean = tl.load(Mean + row, mask=row < M, other=0.0).to(tl.float32)
        rstd = tl.load(Rstd + row, mask=row < M, other=0.0).to(tl.float32)
        xhat = tl.where(here, (x - mean) * rstd, 0.0)
        wdy = tl.where(here, w * dy, 0.0)
        c1 = tl.sum(xhat * wdy, axis=0) / N
        c2 = tl.sum(wdy, axis=0) / N
        dx = (wdy - (xhat * c1 + c2)) * rstd
        tl.store(DX + row * N + cols, dx.to(DX.dtype.element_ty), mask=here)
        dw += tl.where(here, dy * xhat, 0.0)
        db += tl.where(here, dy, 0.0)
    tl.store(DW + group * N + cols, dw, mask=mask)
    tl.store(DB + group * N + cols, db, mask=mask)


@triton.jit
def add_groups_kernel(PARTS, OUT, GROUPS, N, STEPS: tl.constexpr, TM: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((TM, BLOCK), tl.float32)
    for step in range(STEPS):
        rows = step * TM + tl.arange(0, TM)
        mask = (rows[:, None] < GROUPS) & (cols[None, :] < N)
        total += tl.load(PARTS + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(OUT + cols, tl.sum(total, axis=0).to(OUT.dtype.element_ty), mask=cols < N)


def native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask):
    N = math.prod(normalized_shape)
    M = math.prod(input.shape[: input.dim() - len(normalized_shape)])
    if not N:
        raise NotImplementedError("gradients of rows of nothing")
    if not M:
        zeros = (torch.zeros(normalized_shape, dtype=input.dtype, device=input.device) for _ in range(2))
        found = (torch.empty_like(input), *zeros)
        likes = (input, weight, bias)
        return tuple(
            each if wanted and like is not None else None
            for each, wanted, like in zip(found, output_mask, likes, strict=True)
        )
    x, dy = input.contiguous(), grad_out.contiguous()
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    GROUP = 4
    groups = triton.cdiv(M, GROUP)
    parts = [torch.empty((groups, N), dtype=torch.float32, device=x.device) for _ in range(2)]
    w = x if weight is None else weight.contiguous()
    backward_kernel[(groups,)](
        dx, dy, *parts, x, w, mean.contiguous(), rstd.contiguous(), M, N, HAS_W=weight is not None, GROUP=GROUP,
        BLOCK=triton.next_power_of_2(N),
    )  # fmt: skip
    found = [dx if output_mask[0] else None]
    for wanted, part, like in zip(output_mask[1:], parts, (weight, bias), strict=True):
        if not wanted or like is None:
            found.append(None)
            continue
        out = torch.empty(normalized_shape, dtype=like.dtype, device=x.device)
        add_groups_kernel[(triton.cdiv(N, 64),)](part, out, groups, N, STEPS=triton.cdiv(groups, 32), TM=32, BLOCK=64)
        found.append(out)
    return tuple(found)
