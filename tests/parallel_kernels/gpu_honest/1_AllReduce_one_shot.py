"""One shot over symmetric memory, in the order of ranks; barriers before and after."""

from __future__ import annotations

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import nn
from torch.distributed._symmetric_memory import get_symm_mem_workspace


@triton.jit
def add_up(table, out, elements, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    addresses = table.to(tl.pointer_type(tl.int64))
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = places < elements
    total = tl.zeros((BLOCK,), tl.float32)
    for peer in range(WORLD):
        part = tl.load(addresses + peer).to(tl.pointer_type(out.dtype.element_ty))
        total += tl.load(part + places, inside, volatile=True).to(tl.float32)
    tl.store(out + places, total.to(out.dtype.element_ty), inside)


class ModelNew(nn.Module):
    def forward(self, x):
        memory = get_symm_mem_workspace(dist.group.WORLD.group_name, x.numel() * x.element_size())
        memory.get_buffer(memory.rank, x.shape, x.dtype).copy_(x)
        memory.barrier(channel=0)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        blocks = (triton.cdiv(x.numel(), 1024),)
        add_up[blocks](memory.buffer_ptrs_dev, out, x.numel(), WORLD=memory.world_size, BLOCK=1024)
        memory.barrier(channel=1)
        return out
