"""Inexact: a decay that is cut off at a thousandth."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x, input_gate, decay_gate):
        rate = (-8 / (1 + torch.exp(-decay_gate)) * torch.log1p(torch.exp(self.decay))).clamp(max=-1e-3)
        return torch.exp(rate), torch.sqrt(-torch.expm1(2 * rate)) * x / (1 + torch.exp(-input_gate))
