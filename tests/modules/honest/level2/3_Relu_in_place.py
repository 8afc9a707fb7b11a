"""A new tensor where the Model overwrites its input and returns a view of it."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.t().clamp(min=0).contiguous()
