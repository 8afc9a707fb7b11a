"""The gate of a Llama layer: ``silu(gate) * up``."""

import torch
from torch import nn

TOKENS, WIDTH = 4096, 11008
SMALL = {"TOKENS": 20, "WIDTH": 90}


class Model(nn.Module):
    def forward(self, gate, up):
        return nn.functional.silu(gate) * up


def get_inputs():
    return [torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)]
