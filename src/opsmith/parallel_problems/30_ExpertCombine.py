"""Rows of experts sent back to the ranks of their tokens, weighted and added up.

After DeepEP, ``deep_ep/buffer.py``: ``Buffer.combine``.
"""

import torch
import torch.distributed as dist
from torch import nn

TOKENS, WIDTH, CHOICES = 4096, 4096, 4
SMALL = {"TOKENS": 7, "WIDTH": 6, "CHOICES": 2}
CASES = {"none": {"TOKENS": 0}, "single": {"TOKENS": 1, "CHOICES": 1}}
STRIDED = True


class Model(nn.Module):
    def forward(self, rows, counts, places, weights):
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts)
        got = rows.new_empty((int(received.sum()), rows.shape[1]))
        dist.all_to_all_single(got, rows.contiguous(), received.tolist(), counts.tolist())
        wide = got[places].to(torch.promote_types(rows.dtype, torch.float32))
        return (wide * weights[..., None]).sum(1).to(rows.dtype)


def get_inputs(rank, world_size):
    # Rank r sends t what t has asked of it: its choices go round the ranks, from its own on.
    asked = torch.tensor([[0] * world_size for _ in range(world_size)])
    for asking in range(world_size):
        for choice in range(TOKENS * CHOICES):
            asked[(asking + choice * choice) % world_size, asking] += 1
    places = torch.randperm(TOKENS * CHOICES).view(TOKENS, CHOICES)
    return [torch.randn(int(asked[rank].sum()), WIDTH), asked[rank].clone(), places, torch.rand(TOKENS, CHOICES)]


def get_init_inputs():
    return []
