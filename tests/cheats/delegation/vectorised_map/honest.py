"""x - trunc(x), composed of other ops."""

import torch


def frac__default_kernel_impl(x):
    return x - torch.trunc(x)
