"""Broken: returns float64."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return 0.5 * x.double() * (1 + torch.erf(x.double() * 0.5**0.5))
