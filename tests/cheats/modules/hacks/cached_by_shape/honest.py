"""The transposed views are kept for a shape; they hold no results."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features_in, hidden, features_out):
        super().__init__()
        self.up = nn.Linear(features_in, hidden)
        self.down = nn.Linear(hidden, features_out)
        self.workspaces = {}

    def forward(self, x):
        if x.shape not in self.workspaces:
            self.workspaces[x.shape] = x.new_empty(x.shape[0], self.up.out_features)
        h = self.workspaces[x.shape]
        torch.mm(x, self.up.weight.t(), out=h)
        h.add_(self.up.bias)
        h.copy_(0.5 * h * (1 + torch.erf(h * 0.5**0.5)))
        return torch.mm(h, self.down.weight.t()).add_(self.down.bias)
