"""Kernels of rows with a fault under ATen's contract; ``causes.toml`` has an input for each."""

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
def max_kernel(x_ptr, value_ptr, index_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + i, mask=i < N, other=float("-inf"))
    x = tl.where(x == x, x, float("-inf"))
    tl.store(value_ptr + row, tl.max(x, axis=0))
    tl.store(index_ptr + row, tl.argmax(x, axis=0).to(tl.int64))


def max_dim(self, dim, keepdim=False):
    """After FlagGems' ``ops/max.py``: Triton's maximum on a GPU returns the number beside a NaN."""
    x, shape = lines(self, dim)
    values = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    indices = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    if values.numel():
        max_kernel[(x.shape[0],)](x, values, indices, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    if self.dim() == 0:
        return values.view(()), indices.view(())
    found = values.view(shape[:-1]), indices.view(shape[:-1])
    return tuple(each.unsqueeze(dim) for each in found) if keepdim else found


@triton.jit
def cumsum_kernel(s_ptr, o_ptr, T, CHUNKS: tl.constexpr, BT: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, BT)
    earlier = tl.where(places[:, None] >= places[None, :], 1.0, 0.0)
    carry = 0.0
    for chunk in range(CHUNKS):
        i_t = chunk * BT + places
        s = tl.load(s_ptr + row * T + i_t, mask=i_t < T, other=0.0)
        o = tl.sum(earlier * s[None, :], axis=1) + carry
        carry += tl.sum(s, axis=0)
        tl.store(o_ptr + row * T + i_t, o, mask=i_t < T)


def cumsum(self, dim, *, dtype=None):
    """After flash-linear-attention's ``fla/ops/utils/cumsum.py``: a product with a triangle of ones and zeros."""
    if dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    s, shape = lines(self, dim)
    o = torch.empty(s.shape, dtype=s.dtype, device=s.device)
    if s.numel():
        BT = min(64, triton.next_power_of_2(s.shape[1]))
        cumsum_kernel[(s.shape[0],)](s, o, s.shape[1], CHUNKS=triton.cdiv(s.shape[1], BT), BT=BT)
    return o.view(shape).movedim(-1, dim) if self.dim() else o.view(())


@triton.jit
def logsumexp_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + i, mask=i < N, other=float("-inf"))
    top = tl.max(x, axis=0)
    tl.store(z_ptr + row, tl.log(tl.sum(tl.exp(x - top), axis=0)) + top)


def logsumexp(self, dim, keepdim=False):
    """After flash-linear-attention's ``fla/ops/utils/logsumexp.py``: the largest is subtracted, whatever it is."""
    if len(dim) != 1 or not self.numel():
        raise NotImplementedError("one dimension of something")
    x, shape = lines(self, dim[0])
    z = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    logsumexp_kernel[(x.shape[0],)](x, z, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    if self.dim() == 0:
        return z.view(())
    return z.view(shape[:-1]).unsqueeze(dim[0]) if keepdim else z.view(shape[:-1])
