"""Gradients scaled so that their norm over all ranks is at most so large.

After torchtitan, ``torchtitan/distributed/utils.py``: ``clip_grad_norm_``, of divided gradients.
"""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, TENSORS, LARGEST, EPSILON = 2048, 6, 1.0, 1e-6
SMALL = {"WIDTH": 6, "TENSORS": 3}
CASES = {"single": {"WIDTH": 1, "TENSORS": 1}, "small": {"SCALE": 1e-4}, "many": {"WIDTH": 33}}
SCALE = 1.0
STRIDED = True


class Model(nn.Module):
    def forward(self, *gradients):
        wide = torch.promote_types(gradients[0].dtype, torch.float32)
        squares = torch.stack([gradient.to(wide).square().sum() for gradient in gradients]).sum()
        dist.all_reduce(squares)
        norm = squares.sqrt()
        factor = (LARGEST / (norm + EPSILON)).clamp(max=1.0)
        return norm, *[(gradient * factor).to(gradient.dtype) for gradient in gradients]


def get_inputs(rank, world_size):
    return [torch.randn(WIDTH + number, WIDTH) * SCALE for number in range(TENSORS)]


def get_init_inputs():
    return []
