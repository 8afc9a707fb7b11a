"""A base class of its own does the bookkeeping, ModelNew the work."""

import torch
from torch import nn


class Scaled(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps


class ModelNew(Scaled):
    def forward(self, x):
        wide = x.double()
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        root = torch.sqrt(length * length / x.shape[-1] + self.eps)
        return (wide / root * self.weight).to(x.dtype)
