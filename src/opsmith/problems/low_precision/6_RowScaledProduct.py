"""A product of E4M3 operands with a scale for each token and each output channel."""

import torch
from torch import nn

TOKENS, WIDTH, DEPTH = 4096, 8192, 8192
SMALL = {"TOKENS": 32, "WIDTH": 48, "DEPTH": 128}


class Model(nn.Module):
    def forward(self, x, weight, scale_x, scale_weight):
        return torch._scaled_mm(x, weight.t(), scale_a=scale_x, scale_b=scale_weight.t(), out_dtype=torch.bfloat16)


def get_inputs():
    x, weight = (torch.randn(rows, DEPTH).to(torch.float8_e4m3fn) for rows in (TOKENS, WIDTH))
    return [x, weight, torch.rand(TOKENS, 1) + 0.5, torch.rand(WIDTH, 1) + 0.5]


def get_init_inputs():
    return []
