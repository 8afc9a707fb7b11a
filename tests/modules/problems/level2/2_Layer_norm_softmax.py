"""A layer norm and a softmax, in evaluation mode, whose results are a tuple."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.eval()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        normed = self.norm(x)
        return normed, torch.softmax(normed, dim=-1)


def get_inputs():
    return [torch.rand(4, 3, 32)]


def get_init_inputs():
    return [32]
