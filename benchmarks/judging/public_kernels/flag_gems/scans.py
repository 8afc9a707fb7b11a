"""A running sum in blocks, whose totals are summed in turn and added, after FlagGems' ``ops/cumsum.py``."""

import torch
import triton
import triton.language as tl

from .softmax import lines

BLOCK = 512


@triton.jit
def scan_blocks(x_ptr, y_ptr, totals_ptr, M, N, blocks, TM: tl.constexpr, SIZE: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    block = tl.program_id(1)
    columns = block * SIZE + tl.arange(0, SIZE)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    y = tl.cumsum(x, axis=1)
    tl.store(y_ptr + rows[:, None] * N + columns[None, :], y, mask=inside)
    tl.store(totals_ptr + rows * blocks + block, tl.sum(x, axis=1), mask=rows < M)


@triton.jit
def add_before(y_ptr, running_ptr, out_ptr, M, N, blocks, TM: tl.constexpr, SIZE: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    block = tl.program_id(1)
    columns = block * SIZE + tl.arange(0, SIZE)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    before = tl.load(running_ptr + rows * blocks + block - 1, mask=(rows < M) & (block > 0), other=0.0)
    y = tl.load(y_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    y = tl.where(block > 0, y + before[:, None], y)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], y.to(out_ptr.dtype.element_ty), mask=inside)


def _running(x):
    """The running sums of a matrix' rows, in float32."""
    M, N = x.shape
    blocks = triton.cdiv(N, BLOCK)
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    totals = torch.empty((M, blocks), dtype=torch.float32, device=x.device)
    size = min(BLOCK, triton.next_power_of_2(N))
    TM = min(triton.next_power_of_2(M), max(1, 2048 // size))
    grid = (triton.cdiv(M, TM), blocks)
    scan_blocks[grid](x, y, totals, M, N, blocks, TM=TM, SIZE=size)
    return y, totals, grid, TM, size


def cumsum(self, dim, *, dtype=None):
    if dtype not in (None, torch.float32, torch.bfloat16):
        raise NotImplementedError("floats of up to 32 bits only")
    x, back = lines(self if dtype is None else self.to(dtype), dim)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        levels = [_running(x)]
        while levels[-1][1].shape[1] > BLOCK:
            levels.append(_running(levels[-1][1]))
        # The totals of the last level fit one block.
        running = _running(levels[-1][1])[0]
        for place in range(len(levels) - 1, -1, -1):
            y, totals, grid, TM, size = levels[place]
            result = out if place == 0 else torch.empty_like(y)
            add_before[grid](y, running, result, *y.shape, totals.shape[1], TM=TM, SIZE=size)
            running = result
    return back(out)
