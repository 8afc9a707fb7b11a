"""Right: the cross inside one addcmul."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cross = nn.Linear(width, width)

    def forward(self, first, x):
        return torch.addcmul(x, first, x @ self.cross.weight.t() + self.cross.bias)
