"""Each rank's largest, of which the largest are taken."""

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
    def forward(self, logits, count):
        values, places = logits.topk(count, dim=-1)
        values = torch.cat(exchanged(values), -1)
        places = torch.cat(exchanged(places + dist.get_rank() * logits.shape[-1]), -1)
        values, order = values.topk(count, dim=-1)
        return values, places.gather(-1, order)
