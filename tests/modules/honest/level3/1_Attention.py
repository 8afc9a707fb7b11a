"""Attention one query at a time, whose causal mask is written into the code."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features, length):
        super().__init__()
        self.key = nn.Linear(features, features)
        self.query = nn.Linear(features, features)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)))

    def forward(self, x):
        query, key = self.query(x), self.key(x)
        result = torch.empty_like(x)
        for place in range(x.shape[1]):
            seen = slice(0, place + 1)
            scores = (query[:, place : place + 1] * key[:, seen]).sum(dim=-1) * x.shape[-1] ** -0.5
            result[:, place] = (torch.softmax(scores, dim=-1)[..., None] * x[:, seen]).sum(dim=1)
        return result
