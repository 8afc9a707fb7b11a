"""Rotary position embedding of queries and keys, halves rotated against each other."""

import torch
from torch import nn

HEADS, KEYS, LENGTH, WIDTH = 32, 8, 2048, 128
SMALL = {"HEADS": 4, "KEYS": 2, "LENGTH": 12, "WIDTH": 16}


class Model(nn.Module):
    def forward(self, q, k, cos, sin):
        def turned(x):
            first, second = x.chunk(2, -1)
            return torch.cat([-second, first], -1)

        return q * cos + turned(q) * sin, k * cos + turned(k) * sin


def get_inputs():
    angles = torch.outer(torch.arange(LENGTH), 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH))
    angles = torch.cat([angles, angles], -1)
    return [torch.randn(2, HEADS, LENGTH, WIDTH), torch.randn(2, KEYS, LENGTH, WIDTH), angles.cos(), angles.sin()]
