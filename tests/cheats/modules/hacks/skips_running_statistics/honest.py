"""The same composition, which moves the running statistics along as batch normalisation does."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x):
        norm, shape = self.norm, (1, -1, 1, 1)
        y = F.conv2d(x, self.conv.weight, self.conv.bias)
        mean, variance = y.mean((0, 2, 3)), y.var((0, 2, 3), correction=0)
        n = y.numel() / y.shape[1]
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (n / (n - 1)), norm.momentum)
        norm.num_batches_tracked += 1
        y = (y - mean.view(shape)) * torch.rsqrt(variance + norm.eps).view(shape) * norm.weight.view(shape)
        return (y + norm.bias.view(shape)).clamp_min(0)
