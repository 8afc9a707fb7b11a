"""A product of E4M3 operands, tokens with a scale for 128 neighbours, weights with one for 128 x 128 (DeepSeek-V3)."""

import torch
from torch import nn

TOKENS, WIDTH, DEPTH, BLOCK = 4096, 7168, 4096, 128
SMALL = {"TOKENS": 32, "WIDTH": 256, "DEPTH": 384}


class Model(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, scale_x, weight, scale_weight):
        x = x.float() * scale_x.repeat_interleave(self.block, 1)
        wide = scale_weight.repeat_interleave(self.block, 0).repeat_interleave(self.block, 1)
        return (x @ (weight.float() * wide).t()).bfloat16()


def get_inputs():
    x, weight = (torch.randn(rows, DEPTH).to(torch.float8_e4m3fn) for rows in (TOKENS, WIDTH))
    blocks = DEPTH // BLOCK
    return [x, torch.rand(TOKENS, blocks) + 0.5, weight, torch.rand(WIDTH // BLOCK, blocks) + 0.5]


def get_init_inputs():
    return [BLOCK]
