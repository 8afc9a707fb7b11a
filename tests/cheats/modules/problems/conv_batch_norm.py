"""A convolution, batch normalisation in training mode and a ReLU."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels_in, channels_out, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(4, 3, 10, 10)]


def get_init_inputs():
    return [3, 6, 3]
