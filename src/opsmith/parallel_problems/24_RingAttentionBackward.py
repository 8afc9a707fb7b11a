"""The gradients of causal attention over a sequence that is divided among ranks.

After ring-flash-attention, ``ring_flash_attn/ring_flash_attn.py``: ``ring_flash_attn_backward``.
"""

import torch
import torch.distributed as dist
from torch import nn

BATCH, HEADS, TOKENS, WIDTH = 2, 16, 2048, 128
SMALL = {"BATCH": 2, "HEADS": 2, "TOKENS": 5, "WIDTH": 8}
CASES = {"single": {"TOKENS": 1, "WIDTH": 2}, "long": {"HEADS": 1, "TOKENS": 37}}
STRIDED = True


class Model(nn.Module):
    def forward(self, gradient, q, k, v):
        rank, world = dist.get_rank(), dist.get_world_size()
        wide = torch.promote_types(q.dtype, torch.float32)
        keys, values = gathered(k.to(wide)), gathered(v.to(wide))
        q_wide, gradient_wide = q.to(wide), gradient.to(wide)
        places = torch.arange(q.shape[-2], device=q.device)
        all_places = torch.arange(keys.shape[-2], device=q.device)
        scale = q.shape[-1] ** -0.5
        scores = (q_wide @ keys.transpose(-1, -2)) * scale
        scores = scores.masked_fill(all_places > (places + rank * len(places))[:, None], float("-inf"))
        weights = scores.softmax(-1)
        of_weights = gradient_wide @ values.transpose(-1, -2)
        of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
        of_q = of_scores @ keys
        of_keys = torch.stack((of_scores.transpose(-1, -2) @ q_wide).chunk(world, -2))
        of_values = torch.stack((weights.transpose(-1, -2) @ gradient_wide).chunk(world, -2))
        dist.all_reduce(of_keys)
        dist.all_reduce(of_values)
        return of_q.to(q.dtype), of_keys[rank].to(k.dtype), of_values[rank].to(v.dtype)


def gathered(own):
    parts = [torch.empty(own.shape, dtype=own.dtype, device=own.device) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own.contiguous())
    return torch.cat(parts, -2)


def get_inputs(rank, world_size):
    return [torch.randn(BATCH, HEADS, TOKENS, WIDTH) for _ in range(4)]


def get_init_inputs():
    return []
