"""Group norm and its gradients, after Liger-Kernel's ``src/liger_kernel/ops/group_norm.py``.

Forward: a program for each group of each sample takes sum and sum of squares of what is left of the first element, so
that no offset cancels. Backward: programs give the gradient of the input and, for each sample, those of the parameters,
which a second kernel adds up.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    X, Y, W, B, MEAN, RSTD, size, HxW, G, channels, eps, HAS_W: tl.constexpr, HAS_B: tl.constexpr,
    STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    group = row % G
    X += row.to(tl.int64) * size
    Y += row.to(tl.int64) * size
    first = tl.load(X).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        i = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(X + i, mask=i < size, other=0.0).to(tl.float32) - first
        total += tl.where(i < size, x, 0.0)
    mean = tl.sum(total, axis=0) / size + first
    squares = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        i = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(X + i, mask=i < size, other=0.0).to(tl.float32) - mean
        squares += tl.where(i < size, x * x, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / size + eps)
    tl.store(MEAN + row, mean.to(MEAN.dtype.element_ty))
    tl.store(RSTD + row, rstd.to(RSTD.dtype.element_ty))
    for step in range(STEPS):
        i = step * BLOCK + tl.arange(0, BLOCK)
        mask = i < size
        channel = group * channels + i // HxW
        y = (tl.load(X + i, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        if HAS_W:
            y = y * tl.load(W + channel, mask=mask, other=0.0).to(tl.float32)
        if HAS_B:
            y = y + tl.load(B + channel, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + i, y.to(Y.dtype.element_ty), mask=mask)


def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    size = C // group * HxW
    if C % group or not size:
        raise NotImplementedError("groups of nothing, or of unequal size")
    x = input.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty((N, group), dtype=x.dtype, device=x.device) for _ in range(2))
    w, b = (x if each is None else each.contiguous() for each in (weight, bias))
    BLOCK = min(1024, triton.next_power_of_2(size))
    if not N:
        return y, mean, rstd
    forward_kernel[(N * group,)](
        x, y, w, b, mean, rstd, size, HxW, group, C // group, eps, HAS_W=weight is not None, HAS_B=bias is not None,
        STEPS=triton.cdiv(size, BLOCK), BLOCK=BLOCK,
    )  # fmt: skip
    return y, mean, rstd


@triton.jit
def backward_kernel(
    DY,
    X,
    W,
    MEAN,
    RSTD,
    DX,
    DW,
    DB,
    HxW,
    G,
    C,
    channels: tl.constexpr,
    HAS_W: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    sample, group = row // G, row % G
    mean = tl.load(MEAN + row).to(tl.float32)
    rstd = tl.load(RSTD + row).to(tl.float32)
    c1 = 0.0
    c2 = 0.0
    for channel in range(channels):
        at = group * channels + channel
        base = (sample * C + at).to(tl.int64) * HxW
        dw = tl.zeros((BLOCK,), tl.float32)
        db = tl.zeros((BLOCK,), tl.float32)
        for step in range(STEPS):
            i = step * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(X + base + i, mask=i < HxW, other=0.0).to(tl.float32)
            dy = tl.load(DY + base + i, mask=i < HxW, other=0.0).to(tl.float32)
            dw += tl.where(i < HxW, dy * (x - mean) * rstd, 0.0)
            db += tl.where(i < HxW, dy, 0.0)
        dw_total = tl.sum(dw, axis=0)
        db_total = tl.sum(db, axis=0)
        tl.store(DW + sample * C + at, dw_total)
        tl.store(DB + sample * C + at, db_total)
        w = 1.0
        if HAS_W:
            w = tl.load(W + at).to(tl.float32)
        c1 += dw_total * w
        c2 += db_total * w
    count = channels * HxW
    c1 = c1 / count
    c2 = c2 / count
    for channel in range(channels):
        at = group * channels + channel
        base = (sample * C + at).to(tl.int64) * HxW
        w = 1.0
        if HAS_W:
            w = tl.load(W + at).to(tl.float32)
        for step in range(STEPS):
            i = step * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(X + base + i, mask=i < HxW, other=0.0).to(tl.float32)
            dy = tl.load(DY + base + i, mask=i < HxW, other=0.0).to(tl.float32)
            dx = (dy * w - (x - mean) * rstd * c1 - c2) * rstd
            tl.store(DX + base + i, dx.to(DX.dtype.element_ty), mask=i < HxW)


@triton.jit
def add_samples_kernel(PARTS, OUT, N, C, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for n in range(STEPS):
        total += tl.load(PARTS + n * C + c, mask=c < C, other=0.0)
    tl.store(OUT + c, total.to(OUT.dtype.element_ty), mask=c < C)


def native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask):
    if C % group or not C * HxW:
        raise NotImplementedError("groups of nothing, or of unequal size")
    x, dy = input.contiguous(), grad_out.contiguous()
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    parts = [torch.empty((N, C), dtype=torch.float32, device=x.device) for _ in range(2)]
    BLOCK = min(1024, triton.next_power_of_2(HxW))
    if not N:
        zeros = [torch.zeros(C, dtype=x.dtype, device=x.device) if wanted else None for wanted in output_mask[1:]]
        return dx if output_mask[0] else None, *zeros
    backward_kernel[(N * group,)](
        dy, x, x if weight is None else weight.contiguous(), mean.contiguous(), rstd.contiguous(), dx, *parts, HxW,
        group, C, channels=C // group, HAS_W=weight is not None, STEPS=triton.cdiv(HxW, BLOCK), BLOCK=BLOCK,
    )  # fmt: skip
    found = [dx if output_mask[0] else None]
    for wanted, part in zip(output_mask[1:], parts, strict=True):
        out = torch.empty(C, dtype=x.dtype, device=x.device) if wanted else None
        if wanted:
            add_samples_kernel[(triton.cdiv(C, 64),)](part, out, N, C, STEPS=N, BLOCK=64)
        found.append(out)
    return tuple(found)
