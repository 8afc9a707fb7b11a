"""A linear layer and a ReLU."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.rand(6, 16)]


def get_init_inputs():
    return [16, 24]
