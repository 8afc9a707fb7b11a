"""Weights in E4M3 as NVIDIA has it to E4M3 as the MI300 has it: the same bits are half as much, and 0x80 is no zero."""

import torch
from torch import nn

ROWS, COLUMNS = 16384, 16384
SMALL = {"ROWS": 32, "COLUMNS": 256}


class Model(nn.Module):
    def forward(self, weight, scale):
        bits = weight.view(torch.uint8)
        return bits.masked_fill(bits == 0x80, 0).view(torch.float8_e4m3fnuz), scale * 2


def get_inputs():
    return [torch.randn(ROWS, COLUMNS).to(torch.float8_e4m3fn), torch.rand(ROWS, 1) + 0.5]


def get_init_inputs():
    return []
