"""A product of NVFP4 operands: packed E2M1, an E4M3 scale for each block of 16, and one for each whole."""

import torch
from torch import nn

ROWS, COLUMNS, DEPTH, BLOCK = 4096, 4096, 8192, 16
SMALL = {"ROWS": 32, "COLUMNS": 48, "DEPTH": 256}


def unpacked(x):
    """The numbers of packed E2M1, the lower half of each byte first."""
    codes = x.view(torch.uint8)
    codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
    size = codes & 7
    values = torch.where(size < 4, size * 0.5, torch.where(size < 6, size - 2.0, size * 2.0 - 8.0))
    return torch.where(codes > 7, -values, values)


class Model(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, scale_x, weight, scale_weight, whole):
        return (self.wide(x, scale_x) @ self.wide(weight, scale_weight).t() * whole).bfloat16()

    def wide(self, numbers, scale):
        return unpacked(numbers) * scale.float().repeat_interleave(self.block, 1)


def get_inputs():
    operands = []
    for rows in (ROWS, COLUMNS):
        numbers = torch.randint(256, (rows, DEPTH // 2), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
        operands += [numbers, (torch.rand(rows, DEPTH // BLOCK) + 0.5).to(torch.float8_e4m3fn)]
    return [*operands, torch.rand(()) + 0.5]


def get_init_inputs():
    return [BLOCK]
