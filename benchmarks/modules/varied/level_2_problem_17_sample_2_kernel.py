"""Right: composed of torch's ops, the division as a product."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, scores):
        return torch.softmax(20 * torch.tanh(scores * 0.05), dim=-1)
