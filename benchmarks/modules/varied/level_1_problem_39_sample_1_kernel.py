"""Broken: keeps the dimension that it sums over."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mean(-1, keepdim=True) * x.shape[-1]
