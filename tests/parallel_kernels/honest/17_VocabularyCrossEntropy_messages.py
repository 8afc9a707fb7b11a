"""One exchange of largest, sum and target's logit of each token."""

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
    def forward(self, logits, targets):
        first, width = dist.get_rank() * logits.shape[-1], logits.shape[-1]
        wide = logits.float()
        largest = wide.amax(-1)
        total = (wide - largest[:, None]).exp().sum(-1)
        own = (targets >= first) & (targets < first + width)
        at_target = wide.gather(-1, (targets - first).where(own, 0)[:, None])[:, 0].where(own, 0.0)
        of_ranks = torch.stack(exchanged(torch.stack([largest, total, at_target])))
        top = of_ranks[:, 0].amax(0)
        sums = (of_ranks[:, 1] * (of_ranks[:, 0] - top).exp()).sum(0)
        return sums.log() + top - of_ranks[:, 2].sum(0)
