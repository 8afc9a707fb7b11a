"""Inexact: logits exponentiated as they are, which overflows from 89."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits):
        powers = torch.exp(logits)
        return powers / powers.sum(-1, keepdim=True)
