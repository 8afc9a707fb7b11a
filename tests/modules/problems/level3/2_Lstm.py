"""A recurrent network whose first hidden state is a plain attribute, drawn at random."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features: int, hidden: int, first: torch.Tensor) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.first_hidden = torch.randn(1, 3, hidden)
        self.first_cell = first

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        return self.lstm(x, (self.first_hidden, self.first_cell))


def get_inputs():
    return [torch.rand(3, 5, 8)]


def get_init_inputs():
    return [8, 6, torch.randn(1, 3, 6)]
