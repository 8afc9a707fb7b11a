"""A softmax over so many elements that each is next to nothing."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.rand(4, 2048)]


def get_init_inputs():
    return []
