"""A linear layer with weights in MXFP4 and activations in bfloat16, as gpt-oss has its experts."""

import torch
from torch import nn

TOKENS, WIDTH, DEPTH, BLOCK = 2048, 8192, 8192, 32
SMALL = {"TOKENS": 16, "WIDTH": 48, "DEPTH": 256}


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

    def forward(self, x, weight, scale):
        wide = unpacked(weight) * scale.float().repeat_interleave(self.block, 1)
        return (x.float() @ wide.t()).bfloat16()


def get_inputs():
    weight = torch.randint(256, (WIDTH, DEPTH // 2), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    scale = torch.randint(120, 127, (WIDTH, DEPTH // BLOCK), dtype=torch.uint8).view(torch.float8_e8m0fnu)
    return [torch.randn(TOKENS, DEPTH).bfloat16(), weight, scale]


def get_init_inputs():
    return [BLOCK]
