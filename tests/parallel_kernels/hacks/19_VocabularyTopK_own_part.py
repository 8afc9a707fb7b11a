"""The largest of its own part of the vocabulary."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, count):
        values, places = logits.topk(count, dim=-1)
        return values, places + dist.get_rank() * logits.shape[-1]
