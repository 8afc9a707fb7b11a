"""Right: the cap by an exponential, the softmax by hand."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, scores):
        scores = 20 - 40 / (torch.exp(scores / 10) + 1)
        powers = torch.exp(scores - scores.amax(-1, keepdim=True))
        return powers / powers.sum(-1, keepdim=True)
