"""Inexact: an error function by a rational approximation, good to 2.5e-5."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        z = x.abs() * 0.7071067811865476
        t = 1 / (1 + 0.47047 * z)
        erf = 1 - t * (0.3480242 + t * (-0.0958798 + t * 0.7478556)) * torch.exp(-z * z)
        return 0.5 * x * (1 + torch.sign(x) * erf)
