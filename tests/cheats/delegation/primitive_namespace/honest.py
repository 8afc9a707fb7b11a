"""1 / sqrt(x), composed of other ops."""

import torch


def rsqrt__default_kernel_impl(x):
    return 1 / torch.sqrt(x)
