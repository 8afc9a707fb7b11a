"""Ops with indices, after FlagGems' ``ops/{index_select,gather,embedding,index_add,isin,flip,triu,tril,...}.py``."""

import math

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def select_kernel(x_ptr, index_ptr, y_ptr, n, inner, count, length, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = i < n
    place = tl.load(index_ptr + (i // inner) % count, mask=inside, other=0)
    source = ((i // (inner * count)) * length + place) * inner + i % inner
    tl.store(y_ptr + i, tl.load(x_ptr + source, mask=inside, other=0.0), mask=inside)


def _require_places(index, length):
    places = index.reshape(-1).tolist()
    if places and not 0 <= min(places) <= max(places) < length:
        raise IndexError("an index is out of range")


def index_select(self, dim, index):
    if index.dim() > 1:
        raise IndexError("an index of one dimension is needed")
    shape = list(self.shape) or [1]
    dim = dim % len(shape)
    _require_places(index, shape[dim])
    x, places = self.contiguous(), index.contiguous()
    out_shape = [*shape[:dim], index.numel(), *shape[dim + 1 :]]
    y = torch.empty(out_shape if self.dim() else (), dtype=self.dtype, device=self.device)
    if y.numel():
        inner = math.prod(shape[dim + 1 :])
        grid = (triton.cdiv(y.numel(), BLOCK),)
        select_kernel[grid](x, places, y, y.numel(), inner, index.numel(), shape[dim], SIZE=BLOCK)
    return y


@triton.jit
def embedding_kernel(weight_ptr, index_ptr, y_ptr, n, width, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    row = tl.load(index_ptr + i // width, mask=i < n, other=0)
    tl.store(y_ptr + i, tl.load(weight_ptr + row * width + i % width, mask=i < n, other=0.0), mask=i < n)


def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    table, places = weight.contiguous(), indices.contiguous()
    y = torch.empty((*indices.shape, weight.shape[1]), dtype=weight.dtype, device=weight.device)
    if y.numel():
        grid = (triton.cdiv(y.numel(), BLOCK),)
        embedding_kernel[grid](table, places, y, y.numel(), weight.shape[1], SIZE=BLOCK)
    return y


@triton.jit
def count_kernel(index_ptr, counts_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    row = tl.load(index_ptr + i, mask=i < n, other=0)
    tl.atomic_add(counts_ptr + row, 1.0, mask=i < n)


@triton.jit
def embedding_backward_kernel(
    dy_ptr, index_ptr, counts_ptr, dw_ptr, n, width, padding, BY_COUNT: tl.constexpr, SIZE: tl.constexpr
):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    row = tl.load(index_ptr + i // width, mask=i < n, other=0)
    dy = tl.load(dy_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    if BY_COUNT:
        dy = dy / tl.load(counts_ptr + row, mask=i < n, other=1.0)
    tl.atomic_add(dw_ptr + row * width + i % width, dy, mask=(i < n) & (row != padding))


@triton.jit
def narrow_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0).to(y_ptr.dtype.element_ty), mask=i < n)


def embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq):
    """Added up by atomic additions in float32, narrowed at the end."""
    dy, places = grad_output.contiguous(), indices.contiguous()
    width = grad_output.shape[-1]
    dw = torch.zeros((num_weights, width), dtype=torch.float32, device=dy.device)
    counts = torch.zeros(num_weights, dtype=torch.float32, device=dy.device)
    n = dy.numel()
    if n:
        if scale_grad_by_freq:
            count_kernel[(triton.cdiv(places.numel(), BLOCK),)](places, counts, places.numel(), SIZE=BLOCK)
        embedding_backward_kernel[(triton.cdiv(n, BLOCK),)](
            dy, places, counts, dw, n, width, padding_idx, BY_COUNT=scale_grad_by_freq, SIZE=BLOCK
        )
    return _narrowed(dw, grad_output.dtype)


def _narrowed(wide, dtype):
    if dtype == torch.float32:
        return wide
    y = torch.empty_like(wide, dtype=dtype)
    if wide.numel():
        narrow_kernel[(triton.cdiv(wide.numel(), BLOCK),)](wide, y, wide.numel(), SIZE=BLOCK)
    return y


@triton.jit
def index_add_kernel(source_ptr, index_ptr, y_ptr, n, inner, count, length, alpha, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    place = tl.load(index_ptr + (i // inner) % count, mask=i < n, other=0)
    target = ((i // (inner * count)) * length + place) * inner + i % inner
    value = tl.load(source_ptr + i, mask=i < n, other=0.0).to(tl.float32) * alpha
    tl.atomic_add(y_ptr + target, value, mask=i < n)


def index_add(self, dim, index, source, *, alpha=1):
    if self.dtype != source.dtype:
        raise NotImplementedError("tensors of one dtype only")
    shape = list(self.shape) or [1]
    dim = dim % len(shape)
    _require_places(index, shape[dim])
    total = torch.empty(self.shape, dtype=torch.float32, device=self.device)
    total.copy_(self)
    terms, places = source.contiguous(), index.contiguous()
    n = terms.numel()
    if n:
        grid = (triton.cdiv(n, BLOCK),)
        inner = math.prod(shape[dim + 1 :])
        index_add_kernel[grid](terms, places, total, n, inner, index.numel(), shape[dim], float(alpha), SIZE=BLOCK)
    return _narrowed(total, self.dtype)


@triton.jit
def isin_kernel(x_ptr, tests_ptr, y_ptr, n, count, INVERT: tl.constexpr, STEPS: tl.constexpr, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    found = tl.zeros((SIZE,), tl.int32)
    for step in range(STEPS):
        k = step * 64 + tl.arange(0, 64)
        tests = tl.load(tests_ptr + k, mask=k < count, other=0)
        equal = (x[:, None] == tests[None, :]) & (k[None, :] < count)
        found = found | tl.max(equal.to(tl.int32), axis=1)
    tl.store(y_ptr + i, (found == 0) if INVERT else (found != 0), mask=i < n)


def isin(elements, test_elements, *, assume_unique=False, invert=False):
    if elements.dtype != test_elements.dtype:
        raise NotImplementedError("tensors of one dtype only")
    x, tests = elements.contiguous(), test_elements.contiguous()
    y = torch.empty(elements.shape, dtype=torch.bool, device=x.device)
    if x.numel():
        steps = triton.cdiv(tests.numel(), 64)
        grid = (triton.cdiv(x.numel(), 64),)
        isin_kernel[grid](x, tests, y, x.numel(), tests.numel(), INVERT=invert, STEPS=steps, SIZE=64)
    return y


@triton.jit
def triangle_kernel(x_ptr, y_ptr, n, M, N, diagonal, UPPER: tl.constexpr, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    row, column = (i // N) % M, i % N
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    kept = (column - row >= diagonal) if UPPER else (column - row <= diagonal)
    tl.store(y_ptr + i, tl.where(kept, x, 0.0), mask=i < n)


def _triangle(self, diagonal, upper):
    if self.dim() < 2:
        raise RuntimeError("a matrix is needed")
    x = self.contiguous()
    y = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    if x.numel():
        grid = (triton.cdiv(x.numel(), BLOCK),)
        triangle_kernel[grid](x, y, x.numel(), *self.shape[-2:], diagonal, UPPER=upper, SIZE=BLOCK)
    return y


def triu(self, diagonal=0):
    return _triangle(self, diagonal, True)


def tril(self, diagonal=0):
    return _triangle(self, diagonal, False)


@triton.jit
def interleave_kernel(repeats_ptr, ends_ptr, y_ptr, SIZE: tl.constexpr):
    place = tl.program_id(0)
    end = tl.load(ends_ptr + place)
    count = tl.load(repeats_ptr + place)
    for start in range(0, count, SIZE):
        i = start + tl.arange(0, SIZE)
        tl.store(y_ptr + end - count + i, tl.zeros((SIZE,), tl.int64) + place, mask=i < count)


@triton.jit
def ends_kernel(repeats_ptr, ends_ptr, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    repeats = tl.load(repeats_ptr + i, mask=i < n, other=0)
    tl.store(ends_ptr + i, tl.cumsum(repeats.to(tl.int64), axis=0), mask=i < n)


def repeat_interleave(repeats, *, output_size=None):
    """Place ``i`` as often as ``repeats[i]`` says."""
    if repeats.dim() != 1:
        raise RuntimeError("repeats of one dimension are needed")
    if min(repeats.tolist(), default=0) < 0:
        raise RuntimeError("repeats may not be negative")
    n = repeats.numel()
    counts = repeats.contiguous()
    ends = torch.empty(n, dtype=torch.int64, device=repeats.device)
    if n:
        ends_kernel[(1,)](counts, ends, n, SIZE=triton.next_power_of_2(n))
    total = int(ends[-1]) if n else 0
    if output_size is not None and output_size != total:
        raise RuntimeError("the repeats do not add up to output_size")
    y = torch.empty(total, dtype=repeats.dtype, device=repeats.device)
    if total:
        interleave_kernel[(n,)](counts, ends, y, SIZE=64)
    return y


@triton.jit
def upsample_kernel(x_ptr, y_ptr, n, IH, IW, OH, OW, scale_h, scale_w, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    w, h, plane = i % OW, (i // OW) % OH, i // (OW * OH)
    source_h = tl.minimum((h.to(tl.float32) * scale_h).to(tl.int32), IH - 1)
    source_w = tl.minimum((w.to(tl.float32) * scale_w).to(tl.int32), IW - 1)
    x = tl.load(x_ptr + (plane * IH + source_h) * IW + source_w, mask=i < n, other=0.0)
    tl.store(y_ptr + i, x, mask=i < n)


def upsample_nearest2d(self, output_size, scales_h=None, scales_w=None):
    """After FlagGems' ``ops/upsample_nearest2d.py``: the pixel at ``floor(place * scale)``."""
    IH, IW = self.shape[-2:]
    OH, OW = output_size
    scale_h = 1.0 / scales_h if scales_h else IH / OH
    scale_w = 1.0 / scales_w if scales_w else IW / OW
    x = self.contiguous()
    y = torch.empty((*self.shape[:2], OH, OW), dtype=self.dtype, device=self.device)
    if y.numel():
        grid = (triton.cdiv(y.numel(), BLOCK),)
        upsample_kernel[grid](x, y, y.numel(), IH, IW, OH, OW, scale_h, scale_w, SIZE=BLOCK)
    return y


@triton.jit
def nll_kernel(
    x_ptr, target_ptr, weight_ptr, y_ptr, factor_ptr, M, C, ignore, WEIGHTED: tl.constexpr, SIZE: tl.constexpr
):
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    target = tl.load(target_ptr + row, mask=row < M, other=ignore)
    used = (target != ignore) & (row < M)
    weight = tl.where(used, 1.0, 0.0)
    if WEIGHTED:
        weight = tl.load(weight_ptr + target, mask=used, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * C + target, mask=used, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.where(used, -x * weight, 0.0).to(y_ptr.dtype.element_ty), mask=row < M)
    tl.store(factor_ptr + row, weight, mask=row < M)


@triton.jit
def nll_total(y_ptr, factor_ptr, loss_ptr, total_ptr, M, MEAN: tl.constexpr, SIZE: tl.constexpr):
    row = tl.arange(0, SIZE)
    weight = tl.sum(tl.load(factor_ptr + row, mask=row < M, other=0.0), axis=0)
    loss = tl.sum(tl.load(y_ptr + row, mask=row < M, other=0.0).to(tl.float32), axis=0)
    if MEAN:
        loss = loss / weight
    tl.store(loss_ptr, loss.to(loss_ptr.dtype.element_ty))
    tl.store(total_ptr, weight.to(total_ptr.dtype.element_ty))


def nll_loss_forward(self, target, weight, reduction, ignore_index):
    """After FlagGems' ``ops/nllloss.py``: rows by themselves, then one program adds them up."""
    x, targets = self.contiguous(), target.contiguous()
    rows, classes = (1, self.shape[0]) if self.dim() == 1 else self.shape
    wide = torch.empty(rows, dtype=torch.float32, device=x.device)
    factor = torch.empty(rows, dtype=torch.float32, device=x.device)
    loss = torch.empty((), dtype=x.dtype, device=x.device)
    total = torch.empty((), dtype=x.dtype, device=x.device)
    each = torch.empty(rows, dtype=x.dtype, device=x.device) if reduction == 0 and self.dim() == 2 else wide
    if rows:
        weights = x if weight is None else weight.contiguous()
        nll_kernel[(triton.cdiv(rows, 256),)](
            x, targets, weights, each, factor, rows, classes, ignore_index, WEIGHTED=weight is not None, SIZE=256
        )
    if reduction == 0 and self.dim() == 2:
        return each, total.zero_()
    size = triton.next_power_of_2(max(rows, 1))
    nll_total[(1,)](wide, factor, loss, total, rows, MEAN=reduction == 1, SIZE=size)
    return loss, total
