"""Messages within the groups that it is given, in the order of their ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, row, column):
        within = summed(x, row)
        return summed(within, column), within


def summed(own, group):
    ranks, rank = dist.get_process_group_ranks(group), dist.get_rank()
    own = own.contiguous()
    parts = {peer: own if peer == rank else torch.empty_like(own) for peer in ranks}
    messages = [dist.P2POp(dist.irecv, parts[peer], peer) for peer in ranks if peer != rank]
    messages += [dist.P2POp(dist.isend, own, peer) for peer in ranks if peer != rank]
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
    first, *others = (parts[peer] for peer in sorted(ranks))
    return sum(others, first.clone())
