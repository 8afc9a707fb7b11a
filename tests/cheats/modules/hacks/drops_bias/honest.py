"""The product accumulates onto the bias: one fused op instead of two."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features_in, features_out))
        self.bias = nn.Parameter(torch.zeros(features_out))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)
