"""Weights in E4M3 with a scale for each block of 128 x 128, back to bfloat16."""

import torch
from torch import nn

ROWS, COLUMNS, BLOCK = 8192, 7168, 128
SMALL = {"ROWS": 256, "COLUMNS": 384}


class Model(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, weight, scale):
        wide = scale.repeat_interleave(self.block, 0).repeat_interleave(self.block, 1)
        return (weight.float() * wide).bfloat16()


def get_inputs():
    weight = torch.randn(ROWS, COLUMNS).to(torch.float8_e4m3fn)
    return [weight, torch.rand(ROWS // BLOCK, COLUMNS // BLOCK) + 0.5]


def get_init_inputs():
    return [BLOCK]
