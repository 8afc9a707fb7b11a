"""A clamp of a shifted input."""

import torch


def hardsigmoid__default_kernel_impl(x):
    return torch.clamp(x + 3, 0, 6) / 6
