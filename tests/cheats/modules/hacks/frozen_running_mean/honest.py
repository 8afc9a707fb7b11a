"""The result first, then the buffer by linear interpolation."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, momentum):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(features))

    def forward(self, x):
        result = torch.add(x, self.mean, alpha=-1)
        self.mean.lerp_(x.sum(0) / x.shape[0], self.momentum)
        return result
