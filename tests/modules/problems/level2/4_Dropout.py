"""A model that draws random numbers, and inputs that are always the same."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.dropout(self.linear(x), 0.5, True)


def get_inputs():
    return [torch.ones(4, 8)]


def get_init_inputs():
    return []
