"""Tokens quantised to E4M3, a scale for each."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, largest):
        super().__init__()
        self.largest = largest

    def forward(self, x):
        scale = x.abs().amax(dim=-1, keepdim=True) / self.largest
        return (x / scale).to(torch.float8_e4m3fn), scale


def get_inputs():
    return [torch.randn(64, 192)]


def get_init_inputs():
    return [448.0]
