"""A composition of other ops; found by its file name alone."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sign(x) * (1 - 1 / (1 + x.abs()))
