"""The first element of a tensor as a number of Python's. Traffic: one element, from a device to the host."""

from __future__ import annotations

from typing import cast

import torch

from .strided_views import View
from .views import seen, viewed


def local_scalar_dense(self: torch.Tensor) -> bool | float | complex:
    """The element, as a bool, an int, a float or a complex number.

    Raises:
        RuntimeError: there is none.
    """
    if not self.numel():
        raise RuntimeError("a tensor without elements is no number")
    on_host = torch.empty((), dtype=self.dtype)
    on_host.copy_(viewed(self, View(seen(self).offset, (), ())))
    return cast("bool | float | complex", on_host.tolist())
