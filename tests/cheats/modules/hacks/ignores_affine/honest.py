"""Layer norm in two passes of torch ops, weights included."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        normal = centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + self.norm.eps)
        return x + normal * self.norm.weight + self.norm.bias
