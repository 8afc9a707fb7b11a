"""Layers of its own, named as the reference's: nothing of torch is replaced."""

import torch
from torch import nn


class Affine(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features_out, features_in))
        self.bias = nn.Parameter(torch.empty(features_out))

    def forward(self, x):
        return torch.einsum("bi,oi->bo", x, self.weight) + self.bias


class ModelNew(nn.Module):
    def __init__(self, features_in, hidden, features_out):
        super().__init__()
        self.up = Affine(features_in, hidden)
        self.down = Affine(hidden, features_out)

    def forward(self, x):
        h = self.up(x)
        return self.down(h * torch.special.ndtr(h))
