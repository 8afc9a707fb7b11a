"""Maximum, exponentials and their sum, one torch op each."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        powers = (x - x.amax(-1, keepdim=True)).exp()
        return powers / powers.sum(-1, keepdim=True)
