"""Inexact: the variance as a difference of squares, which cancels far from zero."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        scale = torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5)
        return (x - mean) * scale * self.norm.weight + self.norm.bias
