"""Works on a copy that it may change."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        product = a.clone()
        product.mul_(b)
        length = a.square().sum(-1).sqrt_()
        other = b.square().sum(-1).sqrt_()
        return product.sum(-1) / (length * other).clamp_(min=1e-8), length
