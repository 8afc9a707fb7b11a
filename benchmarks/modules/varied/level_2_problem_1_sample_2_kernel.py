"""Broken: writes its result over its input."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, gate, up):
        return gate.mul_(up / (1 + torch.exp(-gate)))
