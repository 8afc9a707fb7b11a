"""A layer without the bias that Model's has."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out, bias=False)

    def forward(self, x):
        return torch.relu(self.linear(x))
