import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x):
        y = F.conv2d(x, self.conv.weight, self.conv.bias)
        mean, variance = y.mean((0, 2, 3), keepdim=True), y.var((0, 2, 3), correction=0, keepdim=True)
        shape = (1, -1, 1, 1)
        y = (y - mean) * torch.rsqrt(variance + self.norm.eps) * self.norm.weight.view(shape)
        return (y + self.norm.bias.view(shape)).clamp_min(0)
