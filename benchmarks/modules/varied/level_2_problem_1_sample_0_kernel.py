"""Right: a quotient for the sigmoid."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, gate, up):
        return gate * up / (1 + torch.exp(-gate))
