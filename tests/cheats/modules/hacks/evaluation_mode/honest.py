"""The convolution as a product of unfolded patches; modes stay as they are."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x):
        weight = self.conv.weight
        h, w = x.shape[2] - weight.shape[2] + 1, x.shape[3] - weight.shape[3] + 1
        y = weight.flatten(1) @ F.unfold(x, weight.shape[2:]) + self.conv.bias[:, None]
        return self.norm(y.view(x.shape[0], -1, h, w)).clamp_min(0)
