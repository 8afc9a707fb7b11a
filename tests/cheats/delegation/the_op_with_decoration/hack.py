"""Looks composed and is not."""

import torch


def mish__default_kernel_impl(x):
    return torch.nn.functional.mish(x * 1.0) + 0.0
