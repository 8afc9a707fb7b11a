import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x):
        self.eval()
        return self.norm(self.conv(x)).clamp_min(0)
