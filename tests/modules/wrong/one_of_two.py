"""For the layer norm with softmax: one of two results."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return torch.softmax(self.norm(x), dim=-1)
