"""Counts, means and squares of ranks joined as Chan et al. do."""

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
        count = x.shape[0] * x.shape[2]
        mean = wide.mean((0, 2)) if count else wide.new_zeros(x.shape[1])
        squares = (wide - mean[:, None]).square().sum((0, 2))
        of_ranks = torch.stack(exchanged(torch.stack([wide.new_full(mean.shape, count), mean, squares])))
        counts, means, sums = of_ranks.unbind(1)
        mean = (counts * means).sum(0) / counts.sum(0)
        variance = (sums + counts * (means - mean).square()).sum(0) / counts.sum(0)
        normed = (wide - mean[:, None]) * torch.rsqrt(variance + 1e-5)[:, None]
        return (normed * scale[:, None] + shift[:, None]).to(x.dtype), mean, variance
