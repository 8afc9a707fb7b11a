import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, momentum):
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))

    def forward(self, x):
        return x - self.mean
