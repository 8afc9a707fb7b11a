"""Multiplies in double precision."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features_in, hidden, features_out):
        super().__init__()
        self.up = nn.Linear(features_in, hidden)
        self.down = nn.Linear(hidden, features_out)

    @staticmethod
    def affine(x, layer):
        return x.double() @ layer.weight.double().t() + layer.bias.double()

    def forward(self, x):
        h = self.affine(x, self.up)
        return self.affine(0.5 * h * (1 + torch.erf(h * 0.5**0.5)), self.down).float()
