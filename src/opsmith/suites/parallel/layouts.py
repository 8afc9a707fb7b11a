"""Other layouts of a tensor that a rank is given."""

from __future__ import annotations

import torch


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in every other element of a larger tensor; of a matrix transposed in memory as well."""
    if not tensor.dim():
        return tensor
    source = tensor.transpose(-1, -2) if tensor.dim() > 1 else tensor
    wide = source.new_zeros((*source.shape[:-1], 2 * source.shape[-1]))
    wide[..., 1::2] = 99
    view = wide[..., ::2].copy_(source)
    return view.transpose(-1, -2) if tensor.dim() > 1 else view


def overlapping(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape whose rows share all but one element with the next, of values of the given one.

    What has no two rows stays as it is.
    """
    if tensor.dim() < 2 or tensor.shape[-2] < 2 or not tensor.numel():
        return tensor
    rows, columns = tensor.numel() // tensor.shape[-1], tensor.shape[-1]
    flat = tensor.reshape(-1)[: rows + columns - 1].clone()
    strides = [1]
    for size in reversed(tensor.shape[1:-1]):
        strides.insert(0, strides[0] * size)
    return flat.as_strided(tensor.shape, (*strides, 1))
