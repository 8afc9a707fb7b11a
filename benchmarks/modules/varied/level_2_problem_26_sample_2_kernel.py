"""Broken: ends its process with a bad address."""

import ctypes

from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        ctypes.string_at(8)
        return logits[:, 0]
