"""Gradients that travel as int8 with a scale for each block, added up in float32.

After DeepSpeed, ``deepspeed/runtime/comm/coalesced_collectives.py``: ``all_to_all_quant_reduce`` of ZeRO++.
"""

import torch
import torch.distributed as dist
from torch import nn

BLOCKS, BLOCK = 65536, 256  # Of what goes to one rank.
SMALL = {"BLOCKS": 3, "BLOCK": 16}
CASES = {"single": {"BLOCKS": 1, "BLOCK": 2}, "many": {"BLOCKS": 41}}
DTYPES = ("f32",)


class Model(nn.Module):
    def forward(self, gradient):
        world = dist.get_world_size()
        scales = gradient.abs().amax(-1, keepdim=True) / 127
        codes = (gradient / scales).round().clamp(-127, 127).to(torch.int8)
        got_codes, got_scales = torch.empty_like(codes), torch.empty_like(scales)
        dist.all_to_all_single(got_codes, codes)
        dist.all_to_all_single(got_scales, scales)
        return (got_codes.to(gradient.dtype) * got_scales).view(world, -1, gradient.shape[-1]).sum(0)


def get_inputs(rank, world_size):
    # No value lies between two codes, so that every way of computing them finds the same.
    codes = (
        torch.randint(-126, 127, (BLOCKS * world_size, BLOCK)) + (torch.rand(BLOCKS * world_size, BLOCK) - 0.5) * 0.8
    )
    codes[:, 0] = 127
    return [codes * 2.0 ** torch.randint(-12, -4, (len(codes), 1))]


def get_init_inputs():
    return []
