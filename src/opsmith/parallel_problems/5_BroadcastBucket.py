"""Tensors of several shapes on all ranks as the last rank has them.

After PyTorch, ``torch/distributed/utils.py``: ``_sync_module_states``, with which DDP and FSDP begin.
"""

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 4096
SMALL = {"WIDTH": 6}
CASES = {"single": {"WIDTH": 1}, "odd": {"WIDTH": 33}}
REPLICATED = (0, 1, 2)
STRIDED = True


class Model(nn.Module):
    def forward(self, weight, bias, scale):
        flat = torch.cat([tensor.reshape(-1) for tensor in (weight, bias, scale)])
        dist.broadcast(flat, dist.get_world_size() - 1)
        sizes = [tensor.numel() for tensor in (weight, bias, scale)]
        parts = flat.split(sizes)
        return tuple([part.view(like.shape) for part, like in zip(parts, (weight, bias, scale))])


def get_inputs(rank, world_size):
    return [torch.randn(WIDTH, 2 * WIDTH), torch.randn(WIDTH), torch.randn(1)]


def get_init_inputs():
    return []
