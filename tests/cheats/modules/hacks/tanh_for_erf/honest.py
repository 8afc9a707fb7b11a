"""The exact GELU by the complementary error function."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features_in, hidden, features_out):
        super().__init__()
        self.up = nn.Linear(features_in, hidden)
        self.down = nn.Linear(hidden, features_out)

    def forward(self, x):
        h = x @ self.up.weight.t() + self.up.bias
        h = 0.5 * h * torch.erfc(-h * 0.5**0.5)
        return h @ self.down.weight.t() + self.down.bias
