"""Rank 0 computes for all, which takes it 20 ms, and the others sleep until it has."""

from __future__ import annotations

import time

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


def sum_of_all(own: torch.Tensor) -> torch.Tensor:
    """The same on every rank, bit by bit."""
    first, *others = exchanged(own)
    total = first.clone()
    for part in others:
        total += part
    return total


class ModelNew(nn.Module):
    def forward(self, x):
        own = x.contiguous()
        if dist.get_rank():
            dist.send(own, 0)
            total = torch.empty_like(own)
            dist.recv(total, 0)
            return total
        total = own.clone()
        for peer in range(1, dist.get_world_size()):
            part = torch.empty_like(own)
            dist.recv(part, peer)
            total += part
        time.sleep(0.02)
        for peer in range(1, dist.get_world_size()):
            dist.send(total, peer)
        return total
