"""Takes the reference's state in its own way: the weights of both layers transposed once, when they come."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features_in, hidden, features_out):
        super().__init__()
        self.weights = None

    def load_reference_state(self, state):
        self.weights = [
            (state[f"{name}.weight"].t().contiguous(), state[f"{name}.bias"].clone()) for name in ("up", "down")
        ]

    def forward(self, x):
        (up, up_bias), (down, down_bias) = self.weights
        h = x @ up + up_bias
        h = 0.5 * h * (1 + torch.erf(h * 0.5**0.5))
        return h @ down + down_bias
