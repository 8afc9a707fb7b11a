"""One product for both the rows of the batch and the bias: a column of ones is appended to the input."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features_in, hidden, features_out):
        super().__init__()
        self.up = nn.Linear(features_in, hidden)
        self.down = nn.Linear(hidden, features_out)

    @staticmethod
    def affine(x, layer):
        weight = torch.cat([layer.weight, layer.bias[:, None]], dim=1)
        return torch.cat([x, torch.ones_like(x[:, :1])], dim=1) @ weight.t()

    def forward(self, x):
        h = self.affine(x, self.up)
        return self.affine(0.5 * h * (1 + torch.erf(h * 0.5**0.5)), self.down)
