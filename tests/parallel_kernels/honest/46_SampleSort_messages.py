"""All numbers are exchanged, and each rank keeps its part of their order."""

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


def exchanged_rows(own: torch.Tensor) -> list[torch.Tensor]:
    """What all ranks have, rank by rank, where they have different numbers of rows."""
    rank, world = dist.get_rank(), dist.get_world_size()
    counts = torch.cat(exchanged(torch.tensor([len(own)]))).tolist()
    own = own.contiguous()
    parts = [own if peer == rank else own.new_empty((counts[peer], *own.shape[1:])) for peer in range(world)]
    messages = [dist.P2POp(dist.irecv, parts[peer], peer) for peer in range(world) if peer != rank and counts[peer]]
    messages += [dist.P2POp(dist.isend, own, peer) for peer in range(world) if peer != rank and len(own)]
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
    return parts


class ModelNew(nn.Module):
    def forward(self, x):
        parts = exchanged_rows(x)
        return torch.cat(parts).sort().values.split([len(part) for part in parts])[dist.get_rank()].clone()
