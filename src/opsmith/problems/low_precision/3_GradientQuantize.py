"""Gradients quantised to E5M2 with a scale from earlier steps, and the largest for later ones: delayed scaling."""

import torch
from torch import nn

ROWS, COLUMNS = 8192, 8192
SMALL = {"ROWS": 32, "COLUMNS": 256}
LARGEST = 57344.0


class Model(nn.Module):
    def forward(self, gradient, scale):
        scaled = (gradient.float() * scale).clamp(-LARGEST, LARGEST)
        return scaled.to(torch.float8_e5m2), gradient.abs().amax()


def get_inputs():
    return [torch.randn(ROWS, COLUMNS).bfloat16(), 20_000 * (torch.rand(()) + 0.5)]


def get_init_inputs():
    return []
