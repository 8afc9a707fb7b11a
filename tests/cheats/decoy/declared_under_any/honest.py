"""Looks whether there is Triton, declares nothing in it and composes torch."""

import torch

try:
    import triton
except ImportError:
    triton = None

HAS_TRITON = triton is not None


def hardtanh__default_kernel_impl(self, min_val=-1, max_val=1):
    # With @triton.jit this would be one pass over memory.
    return torch.where(self < min_val, min_val, torch.where(self > max_val, max_val, self))
