"""Causal attention over a sequence that is divided among ranks; keys and values go round a ring.

After ring-flash-attention, ``ring_flash_attn/ring_flash_attn.py``: ``ring_flash_attn_forward``.
"""

import torch
import torch.distributed as dist
from torch import nn

BATCH, HEADS, TOKENS, WIDTH = 2, 16, 2048, 128
SMALL = {"BATCH": 2, "HEADS": 2, "TOKENS": 5, "WIDTH": 8}
CASES = {"single": {"TOKENS": 1, "WIDTH": 2}, "long": {"HEADS": 1, "TOKENS": 67}}
STRIDED = True


class Model(nn.Module):
    def forward(self, q, k, v):
        rank, world = dist.get_rank(), dist.get_world_size()
        wide = torch.promote_types(q.dtype, torch.float32)
        tokens = q.shape[-2]
        causal = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).tril()
        result, total = torch.zeros_like(q, dtype=wide), torch.full_like(q[..., :1], float("-inf"), dtype=wide)
        pair = torch.stack([k, v])
        for step in range(world):
            if step:
                pair = passed_on(pair)
            if step > rank:
                continue  # These keys come after all of its queries.
            scores = (q.to(wide) @ pair[0].to(wide).transpose(-1, -2)) * q.shape[-1] ** -0.5
            if step == 0:
                scores = scores.masked_fill(~causal, float("-inf"))
            own_total = scores.logsumexp(-1, keepdim=True)
            both = torch.logaddexp(total, own_total)
            result = result * (total - both).exp() + (scores - both).exp() @ pair[1].to(wide)
            total = both
        return result.to(q.dtype), total[..., 0]


def passed_on(tensor):
    rank, world = dist.get_rank(), dist.get_world_size()
    received = torch.empty_like(tensor)
    both = [dist.P2POp(dist.isend, tensor, (rank + 1) % world), dist.P2POp(dist.irecv, received, (rank - 1) % world)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return received


def get_inputs(rank, world_size):
    return [torch.randn(BATCH, HEADS, TOKENS, WIDTH) for _ in range(3)]


def get_init_inputs():
    return []
