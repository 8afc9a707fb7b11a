"""A product of MXFP8 operands: E4M3, and a power of two for each block of 32 along the depth."""

import torch
from torch import nn

ROWS, COLUMNS, DEPTH, BLOCK = 4096, 4096, 8192, 32
SMALL = {"ROWS": 32, "COLUMNS": 48, "DEPTH": 256}


class Model(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, scale_x, weight, scale_weight):
        return (self.wide(x, scale_x) @ self.wide(weight, scale_weight).t()).bfloat16()

    def wide(self, numbers, scale):
        return numbers.float() * scale.float().repeat_interleave(self.block, 1)


def get_inputs():
    operands = []
    for rows in (ROWS, COLUMNS):
        scale = torch.randint(124, 131, (rows, DEPTH // BLOCK), dtype=torch.uint8)
        operands += [torch.randn(rows, DEPTH).to(torch.float8_e4m3fn), scale.view(torch.float8_e8m0fnu)]
    return operands


def get_init_inputs():
    return [BLOCK]
