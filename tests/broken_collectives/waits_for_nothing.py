"""Hands back what it should wait for."""

from __future__ import annotations

import torch
import torch.distributed as dist


def wait_tensor__default_kernel_impl(tensor: torch.Tensor) -> torch.Tensor:
    assert dist.is_initialized()
    return tensor
