"""Integer inputs and a number among the inputs."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, words: int, features: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, features)

    def forward(self, indices: torch.Tensor, scale: float) -> torch.Tensor:
        return self.words(indices) * scale


def get_inputs():
    return [torch.randint(0, 50, (4, 7)), 0.5]


def get_init_inputs():
    return [50, 12]
