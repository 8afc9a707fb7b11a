"""Layer normalisation with a residual connection; its weights are ones and zeros when it is made."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return x + self.norm(x)


def get_inputs():
    return [torch.randn(8, 64)]


def get_init_inputs():
    return [64]
