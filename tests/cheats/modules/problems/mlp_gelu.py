"""Two layers with a GELU between them."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features_in, hidden, features_out):
        super().__init__()
        self.up = nn.Linear(features_in, hidden)
        self.down = nn.Linear(hidden, features_out)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


def get_inputs():
    return [torch.randn(16, 24)]


def get_init_inputs():
    return [24, 48, 8]
