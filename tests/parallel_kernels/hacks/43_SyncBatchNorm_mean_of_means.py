"""Weighs ranks alike, whatever their numbers of samples."""

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
    def forward(self, x, scale, shift):
        wide = x.float()
        mean = wide.mean((0, 2)).nan_to_num()
        square = wide.square().mean((0, 2)).nan_to_num()
        means, squares = exchanged(mean), exchanged(square)
        mean = sum(means) / len(means)
        variance = sum(squares) / len(squares) - mean.square()
        normed = (wide - mean[:, None]) * torch.rsqrt(variance + 1e-5)[:, None]
        return (normed * scale[:, None] + shift[:, None]).to(x.dtype), mean, variance
