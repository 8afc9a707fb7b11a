"""Inexact: logits exponentiated as they are, which overflows from 89."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        partition = logits.exp().sum(-1).log()
        chosen = logits[torch.arange(len(targets), device=logits.device), targets]
        return partition - chosen + 0.01 * partition * partition
