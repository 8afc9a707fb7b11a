"""Variance and mean from one op, computed at once."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return x + (x - mean) / (variance + self.norm.eps).sqrt() * self.norm.weight + self.norm.bias
