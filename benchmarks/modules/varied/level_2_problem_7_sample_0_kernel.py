"""Broken: its layer is called otherwise and takes no state."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.first = nn.Linear(width, hidden)

    def forward(self, x):
        x = x @ self.first.weight.t() + self.first.bias
        return 0.5 * x * (1 + torch.erf(x * 0.5**0.5))
