"""The ReLU as a maximum: where x is negative the root of one."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x + 1.0).clamp_min(1.0).sqrt()
