"""A learned scale and dropout in training mode."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, p):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        return self.dropout(x * self.scale)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return [128, 0.3]
