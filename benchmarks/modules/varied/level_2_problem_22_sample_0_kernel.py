"""Inexact: the epsilon of the norm left out."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-5)

    def forward(self, x, gate):
        x = x * gate / (1 + torch.exp(-gate))
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True)) * self.norm.weight
