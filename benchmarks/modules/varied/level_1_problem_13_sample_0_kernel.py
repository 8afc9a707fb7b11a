"""Right: weights kept transposed, taken from the reference's state."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.turned = torch.randn(width, hidden) * width**-0.5
        self.bias = torch.zeros(hidden)

    def load_reference_state(self, state):
        self.turned = state["linear.weight"].t().contiguous()
        self.bias = state["linear.bias"].clone()

    def forward(self, x):
        return torch.matmul(x, self.turned) + self.bias
