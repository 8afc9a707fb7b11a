"""Rows in chunks, each into its part of the output."""

import torch
from torch import nn

ROWS = 3


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        for source, target in zip(x.split(ROWS), out.split(ROWS), strict=True):
            powers = torch.exp(source - source.amax(-1, keepdim=True))
            torch.div(powers, powers.sum(-1, keepdim=True), out=target)
        return out
