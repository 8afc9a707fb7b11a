import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, p):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.p = p

    def forward(self, x):
        return x * self.scale
