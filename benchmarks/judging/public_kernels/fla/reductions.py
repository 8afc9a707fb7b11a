"""Running sums, logarithms of sums and softmax, after flash-linear-attention.

Its files are ``fla/ops/utils/{cumsum,logsumexp,softmax}.py``.
"""

import torch
import triton
import triton.language as tl


def lines(x, dim):
    """The lines along a dimension as a dense matrix."""
    if x.dim() == 0:
        return x.reshape(1, 1), (1,)
    moved = x.movedim(dim, -1).contiguous()
    n = moved.shape[-1]
    return moved.view(moved.numel() // n if n else 0, n), moved.shape


@triton.jit
def chunk_global_cumsum_kernel(s_ptr, o_ptr, B, T, CHUNKS: tl.constexpr, BB: tl.constexpr, BT: tl.constexpr):
    i_b = tl.program_id(0) * BB + tl.arange(0, BB)
    carry = tl.zeros((BB,), tl.float32)
    for chunk in range(CHUNKS):
        i_t = chunk * BT + tl.arange(0, BT)
        mask = (i_b[:, None] < B) & (i_t[None, :] < T)
        s = tl.load(s_ptr + i_b[:, None] * T + i_t[None, :], mask=mask, other=0.0).to(tl.float32)
        o = tl.cumsum(s, axis=1) + carry[:, None]
        carry += tl.sum(s, axis=1)
        tl.store(o_ptr + i_b[:, None] * T + i_t[None, :], o.to(o_ptr.dtype.element_ty), mask=mask)


def cumsum(self, dim, *, dtype=None):
    """A program walks along its lines, chunk by chunk, and carries their sums."""
    if dtype not in (None, torch.float32, torch.bfloat16):
        raise NotImplementedError("floats of up to 32 bits only")
    s, shape = lines(self if dtype is None else self.to(dtype), dim)
    o = torch.empty(s.shape, dtype=s.dtype, device=s.device)
    B, T = s.shape
    if s.numel():
        BT = min(64, triton.next_power_of_2(T))
        BB = min(triton.next_power_of_2(B), 1024 // BT)
        chunk_global_cumsum_kernel[(triton.cdiv(B, BB),)](s, o, B, T, CHUNKS=triton.cdiv(T, BT), BB=BB, BT=BT)
    return o.view(shape).movedim(-1, dim) if self.dim() else o.view(())


@triton.jit
def larger(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def largest_of(x):
    """The largest number of each row; NaN is the largest."""
    nan = tl.max((x != x).to(tl.int32), axis=1)
    top = tl.max(tl.where(x != x, float("-inf"), x), axis=1)
    return tl.where(nan != 0, float("nan"), top)


@triton.jit
def logsumexp_kernel(x_ptr, z_ptr, B, T, CHUNKS: tl.constexpr, BB: tl.constexpr, BT: tl.constexpr):
    i_b = tl.program_id(0) * BB + tl.arange(0, BB)
    top = tl.full((BB,), float("-inf"), tl.float32)
    for chunk in range(CHUNKS):
        i_t = chunk * BT + tl.arange(0, BT)
        mask = (i_b[:, None] < B) & (i_t[None, :] < T)
        x = tl.load(x_ptr + i_b[:, None] * T + i_t[None, :], mask=mask, other=float("-inf")).to(tl.float32)
        top = larger(top, largest_of(x))
    # Of a row whose largest is an infinity that one is subtracted from nothing.
    shift = tl.where((top == float("inf")) | (top == float("-inf")), 0.0, top)
    total = tl.zeros((BB,), tl.float32)
    for chunk in range(CHUNKS):
        i_t = chunk * BT + tl.arange(0, BT)
        mask = (i_b[:, None] < B) & (i_t[None, :] < T)
        x = tl.load(x_ptr + i_b[:, None] * T + i_t[None, :], mask=mask, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - shift[:, None]), axis=1)
    tl.store(z_ptr + i_b, (tl.log(total) + shift).to(z_ptr.dtype.element_ty), mask=i_b < B)


def logsumexp(self, dim, keepdim=False):
    dims = [dim] if isinstance(dim, int) else list(dim)
    rank = self.dim()
    dims = sorted({d % max(rank, 1) for d in dims}) if rank else []
    if rank and not dims:
        dims = list(range(rank))
    kept = [d for d in range(rank) if d not in dims]
    shape = [1 if d in dims else n for d, n in enumerate(self.shape)] if keepdim else [self.shape[d] for d in kept]
    B = 1
    for d in kept:
        B *= self.shape[d]
    x = self.permute(*kept, *dims).contiguous() if rank else self.reshape(1)
    T = x.numel() // B if B else 0
    z = torch.empty(B, dtype=self.dtype, device=self.device)
    if B:
        BT = min(64, triton.next_power_of_2(max(T, 1)))
        BB = min(triton.next_power_of_2(B), 1024 // BT)
        logsumexp_kernel[(triton.cdiv(B, BB),)](x, z, B, T, CHUNKS=triton.cdiv(T, BT), BB=BB, BT=BT)
    return z.view(shape)


@triton.jit
def softmax_kernel(x_ptr, p_ptr, B, D, BB: tl.constexpr, BD: tl.constexpr):
    i_b = tl.program_id(0) * BB + tl.arange(0, BB)
    i_d = tl.arange(0, BD)
    mask = (i_b[:, None] < B) & (i_d[None, :] < D)
    x = tl.load(x_ptr + i_b[:, None] * D + i_d[None, :], mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    p = e / tl.sum(tl.where(mask, e, 0.0), axis=1)[:, None]
    tl.store(p_ptr + i_b[:, None] * D + i_d[None, :], p.to(p_ptr.dtype.element_ty), mask=mask)


def softmax(self, dim, half_to_float):
    x, shape = lines(self, dim)
    B, D = x.shape
    p = torch.empty(x.shape, dtype=torch.float32 if half_to_float else x.dtype, device=x.device)
    if x.numel():
        BD = triton.next_power_of_2(D)
        BB = max(1, 1024 // BD)
        softmax_kernel[(triton.cdiv(B, BB),)](x, p, B, D, BB=BB, BD=BD)
    return p.view(shape).movedim(-1, dim) if self.dim() else p.view(())
