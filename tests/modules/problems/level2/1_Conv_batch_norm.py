"""A convolution and a batch norm in training mode, whose statistics move."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


def get_inputs():
    return [torch.rand(2, 3, 8, 8)]


def get_init_inputs():
    return [3, 5]
