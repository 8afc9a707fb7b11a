"""Assignments of all ranks' samples to prototypes, equally many to each.

After DINOv2, ``dinov2/loss/dino_clstoken_loss.py``: ``sinkhorn_knopp_teacher``.
"""

import torch
import torch.distributed as dist
from torch import nn

SAMPLES, PROTOTYPES, TEMPERATURE, ROUNDS = 64, 65536, 0.5, 3
SMALL = {"SAMPLES": 5, "PROTOTYPES": 7}
CASES = {"single": {"SAMPLES": 1, "PROTOTYPES": 3}, "wide": {"SAMPLES": 3, "PROTOTYPES": 301}}
STRIDED = True


class Model(nn.Module):
    def forward(self, logits):
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        assigned = (wide / TEMPERATURE).exp().t()
        samples = assigned.shape[1] * dist.get_world_size()
        total = assigned.sum()
        dist.all_reduce(total)
        assigned = assigned / total
        for _ in range(ROUNDS):
            rows = assigned.sum(1, keepdim=True)
            dist.all_reduce(rows)
            assigned = assigned / rows / assigned.shape[0]
            assigned = assigned / assigned.sum(0, keepdim=True) / samples
        return (assigned * samples).t()


def get_inputs(rank, world_size):
    return [torch.randn(SAMPLES, PROTOTYPES)]


def get_init_inputs():
    return []
