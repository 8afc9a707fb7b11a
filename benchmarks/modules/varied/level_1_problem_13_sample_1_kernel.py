"""Right: the bias declared before the weight, under Model's names."""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(hidden).uniform_(-(width**-0.5), width**-0.5))
        self.weight = nn.Parameter(torch.empty(hidden, width).uniform_(-(width**-0.5), width**-0.5))


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.linear = Layer(width, hidden)

    def forward(self, x):
        return x @ self.linear.weight.t() + self.linear.bias
