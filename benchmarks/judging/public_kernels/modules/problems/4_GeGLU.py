"""The gate of a Gemma layer: ``gelu(gate) * up`` by its approximation with tanh."""

import torch
from torch import nn

TOKENS, WIDTH = 4096, 16384
SMALL = {"TOKENS": 20, "WIDTH": 90}


class Model(nn.Module):
    def forward(self, gate, up):
        return nn.functional.gelu(gate, approximate="tanh") * up


def get_inputs():
    return [torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)]
