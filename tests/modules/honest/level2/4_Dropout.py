"""The same random numbers, drawn the same way."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        y = x @ self.linear.weight.t()
        return y * torch.empty_like(y).bernoulli_(0.5) * 2
