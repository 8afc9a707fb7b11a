"""Inexact: the variance divided by one less."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, stream, branch):
        stream = torch.add(branch, stream)
        centred = stream - stream.mean(-1, keepdim=True)
        return stream, centred / (stream.std(-1, keepdim=True) + 1e-5) * self.norm.weight + self.norm.bias
