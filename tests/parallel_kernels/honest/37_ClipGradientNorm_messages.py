"""Sums of squares are exchanged as one number."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


def exchanged(own: torch.Tensor) -> list[torch.Tensor]:
    """What all ranks have, rank by rank; all of one shape."""
    rank, world = dist.get_rank(), dist.get_world_size()
    own = own.contiguous()
    parts = [own if peer == rank else torch.empty_like(own) for peer in range(world)]
    messages = [dist.P2POp(dist.irecv, parts[peer], peer) for peer in range(world) if peer != rank]
    messages += [dist.P2POp(dist.isend, own, peer) for peer in range(world) if peer != rank]
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
    return parts


class ModelNew(nn.Module):
    def forward(self, *gradients):
        squares = torch.stack([gradient.float().square().sum() for gradient in gradients]).sum()
        norm = sum(exchanged(squares)).sqrt()
        factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)
        return norm, *[(gradient * factor).to(gradient.dtype) for gradient in gradients]
