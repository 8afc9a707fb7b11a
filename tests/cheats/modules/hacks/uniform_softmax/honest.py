"""The logarithm first: subtracts the log of the sum of exponentials."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x - x.logsumexp(-1, keepdim=True)).exp()
