"""Calls on operands of 8 bits and fewer, in float64.

Such operands are converted before anything is computed, and a Model says into what: often float32, and the result into
bfloat16. In the oracle these conversions lead to float64. Scaled products, which torch has for float32 scales and
narrow results only, are computed from their formula.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.aten.low_precision import PACKED

_SCALED_MM = torch.ops.aten._scaled_mm.default
_TO_COPY = torch.ops.aten._to_copy.default
#: What a conversion leads to float64 instead of.
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


class FromLowPrecision(TorchDispatchMode):
    """Converts to float64, and computes ``_scaled_mm`` there, with scales of the whole, of rows and of blocks."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is _TO_COPY and args[0].is_floating_point() and kwargs.get("dtype") in _FLOATS:
            return func(*args, **{**kwargs, "dtype": torch.float64})
        if func is not _SCALED_MM:
            return func(*args, **kwargs)
        names = [argument.name for argument in func._schema.arguments]
        return _product({**dict(zip(names, args, strict=False)), **kwargs})


def _product(given: dict[str, Any]) -> torch.Tensor:
    if given.get("scale_result") is not None:
        raise NotImplementedError("a scale of the result")
    product = _scaled(given["self"], given["scale_a"]) @ _scaled(given["mat2"], given["scale_b"])
    bias = given.get("bias")
    return product if bias is None else product + bias.double()


def _scaled(operand: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """An operand times its scale: one for all, or for blocks of equal size."""
    if operand.dtype is PACKED or scale.dtype is not torch.float64:
        raise NotImplementedError("scales in a layout of their own")
    if scale.numel() != 1:
        for dim, (size, count) in enumerate(zip(operand.shape, scale.shape, strict=True)):
            if size % count:
                raise NotImplementedError("blocks that do not divide the operand")
            scale = scale.repeat_interleave(size // count, dim)
    return operand.double() * scale
