"""A table that is kept transposed, taken from the state in its own way."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, words, features):
        super().__init__()
        self.columns = torch.empty(features, words)

    def load_reference_state(self, state):
        self.columns.copy_(state["words.weight"].t())

    def forward(self, indices, scale):
        return (self.columns.t()[indices] * scale).contiguous()
