"""Quantised to MXFP8: E4M3, and a power of two for each block of 32 (OCP Microscaling 1.0)."""

import torch
from torch import nn

ROWS, COLUMNS, BLOCK = 8192, 8192, 32
SMALL = {"ROWS": 32, "COLUMNS": 256}
LARGEST = 448.0


class Model(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        blocks = x.float().view(x.shape[0], -1, self.block)
        # The smallest power of two with which the largest of a block is in range.
        exponent = torch.log2(blocks.abs().amax(dim=-1, keepdim=True) / LARGEST).ceil()
        scaled = torch.ldexp(blocks, -exponent)
        scale = (exponent + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
        return scaled.to(torch.float8_e4m3fn).view(x.shape), scale.squeeze(-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS).bfloat16()]


def get_init_inputs():
    return [BLOCK]
