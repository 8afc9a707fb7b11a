"""Causal attention with a mask in a buffer and one weight under two names."""

import math

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features: int, length: int) -> None:
        super().__init__()
        self.key = nn.Linear(features, features)
        self.query = nn.Linear(features, features)
        self.query.weight = self.key.weight
        self.register_buffer("mask", torch.tril(torch.ones(length, length)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-2, -1) / math.sqrt(x.shape[-1])
        return torch.softmax(scores.masked_fill(self.mask == 0, float("-inf")), dim=-1) @ x


def get_inputs():
    return [torch.rand(2, 10, 16)]


def get_init_inputs():
    return [16, 10]
