"""Right: moments by hand, in two passes."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, stream, branch):
        stream = torch.add(branch, stream)
        centred = stream - stream.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        return stream, centred * scale * self.norm.weight + self.norm.bias
