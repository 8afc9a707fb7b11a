"""A product of E4M3 operands with one scale each, as cuBLAS has it."""

import torch
from torch import nn

ROWS, COLUMNS, DEPTH = 4096, 8192, 8192
SMALL = {"ROWS": 32, "COLUMNS": 48, "DEPTH": 128}


class Model(nn.Module):
    def forward(self, x, weight, scale_x, scale_weight):
        return torch._scaled_mm(x, weight.t(), scale_a=scale_x, scale_b=scale_weight, out_dtype=torch.bfloat16)


def get_inputs():
    x, weight = (torch.randn(rows, DEPTH).to(torch.float8_e4m3fn) for rows in (ROWS, COLUMNS))
    return [x, weight, torch.rand(()) + 0.5, torch.rand(()) + 0.5]


def get_init_inputs():
    return []
