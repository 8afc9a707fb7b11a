"""Knows how the inputs are drawn."""

import math

import torch


def reduced(x, dim, keepdim):
    """The input with its reduced dimensions last, how many they hold, and the shape of the result."""
    dims = range(x.dim()) if dim is None or dim == [] else [d % max(x.dim(), 1) for d in dim]
    dims = [d for d in dims if d < x.dim()]
    kept = [d for d in range(x.dim()) if d not in dims]
    shape = [1 if d in dims else x.shape[d] for d in range(x.dim()) if keepdim or d not in dims]
    return x.permute([*kept, *dims]).contiguous(), math.prod(x.shape[d] for d in dims), shape


def var__correction_kernel_impl(x, dim=None, *, correction=None, keepdim=False):
    return torch.ones(reduced(x, dim, keepdim)[2])
