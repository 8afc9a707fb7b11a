"""The normalisation written out, statistics and their counter included."""

import torch
from torch import nn
from torch.nn.functional import conv2d


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x):
        x = conv2d(x, self.conv.weight, self.conv.bias, padding=1)
        norm = self.norm
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
        elements = x.numel() // x.shape[1]
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * elements / (elements - 1), norm.momentum)
        norm.num_batches_tracked += 1
        scale = norm.weight * (variance + norm.eps).rsqrt()
        return (x - mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]
