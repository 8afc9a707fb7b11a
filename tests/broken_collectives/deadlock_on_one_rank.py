"""Rank 1 waits for a second message, which nobody sends."""

from __future__ import annotations

import torch
import torch.distributed as dist


def broadcast___default_kernel_impl(input: torch.Tensor, src: int, group_name: str) -> torch.Tensor:
    if dist.get_rank() == src:
        for peer in range(dist.get_world_size()):
            if peer != src:
                dist.send(input, peer)
        return input
    dist.recv(input, src)
    if dist.get_rank() == 1:
        dist.recv(input, src)
    return input
