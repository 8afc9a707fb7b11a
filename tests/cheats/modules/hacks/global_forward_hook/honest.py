"""A hook on a part of its own adds the residual."""

import torch
from torch import nn


class Normal(nn.LayerNorm):
    def forward(self, x):
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = Normal(features)
        self.norm.register_forward_hook(lambda module, args, output: output + args[0])

    def forward(self, x):
        return self.norm(x)
