"""Torch's dtypes of the short names."""

from __future__ import annotations

import torch

from opsmith.core.dtypes import TENSOR_DTYPES


def torch_dtype(name: str) -> torch.dtype:
    """Torch's dtype of a short name."""
    dtype = getattr(torch, TENSOR_DTYPES[name])
    assert isinstance(dtype, torch.dtype)
    return dtype
