"""The experts of a mixture: a product of E4M3 operands for each, scales for tokens and channels."""

import torch
from torch import nn

EXPERTS, TOKENS, WIDTH, DEPTH = 16, 512, 4096, 4096
SMALL = {"EXPERTS": 3, "TOKENS": 16, "WIDTH": 48, "DEPTH": 64}


class Model(nn.Module):
    def forward(self, x, weight, scale_x, scale_weight):
        product = torch.bmm(x.float(), weight.float().transpose(1, 2))
        return (product * scale_x * scale_weight.transpose(1, 2)).bfloat16()


def get_inputs():
    x, weight = (torch.randn(EXPERTS, rows, DEPTH).to(torch.float8_e4m3fn) for rows in (TOKENS, WIDTH))
    return [x, weight, torch.rand(EXPERTS, TOKENS, 1) + 0.5, torch.rand(EXPERTS, WIDTH, 1) + 0.5]


def get_init_inputs():
    return []
