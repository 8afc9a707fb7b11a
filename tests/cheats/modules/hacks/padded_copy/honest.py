"""Both layers as sums of outer products, built up feature by feature in chunks."""

import torch
from torch import nn

CHUNK = 8


def affine(x, layer):
    total = layer.bias.expand(x.shape[0], -1).clone()
    for columns, weights in zip(x.split(CHUNK, 1), layer.weight.split(CHUNK, 1), strict=True):
        total += (columns[:, None, :] * weights[None, :, :]).sum(-1)
    return total


class ModelNew(nn.Module):
    def __init__(self, features_in, hidden, features_out):
        super().__init__()
        self.up = nn.Linear(features_in, hidden)
        self.down = nn.Linear(hidden, features_out)

    def forward(self, x):
        h = affine(x, self.up)
        return affine(0.5 * h * (1 + torch.erf(h * 0.5**0.5)), self.down)
