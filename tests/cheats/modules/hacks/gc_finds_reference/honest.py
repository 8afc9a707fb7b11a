"""The squares are summed by a product of the row with itself."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        squares = torch.einsum("...i,...i->...", x, x) / x.shape[-1]
        return x / torch.sqrt(squares + self.eps)[..., None] * self.weight
