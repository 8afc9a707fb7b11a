"""New tensors of random numbers: rand, randn, randint, and their relatives after the model of another tensor.

Traffic: ``numel * itemsize`` bytes written, none read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..common.launch import delivered
from ..copies.filling import empty, empty_after
from .distributions import fill_integers, fill_normal, fill_uniform

Op = Callable[..., torch.Tensor]


def standard(fill: Op) -> tuple[Op, Op, Op]:
    """Numbers of a standard distribution: of a size, the same with a generator, and laid out as ``self``."""

    def op(
        size: Sequence[int],
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
    ) -> torch.Tensor:
        return fill(empty(size, dtype, layout, device, pin_memory), 0, 1, None)

    def with_generator(
        size: Sequence[int],
        *,
        generator: torch.Generator | None,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
    ) -> torch.Tensor:
        return fill(empty(size, dtype, layout, device, pin_memory), 0, 1, generator)

    def like(
        self: torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
        memory_format: torch.memory_format | None = None,
    ) -> torch.Tensor:
        out = empty_after(self, dtype, layout, device, pin_memory, memory_format)
        return delivered(fill(out, 0, 1, None), device)

    return op, with_generator, like


rand, rand_generator, rand_like = standard(fill_uniform)
randn, randn_generator, randn_like = standard(fill_normal)


def normal(
    mean: float,
    std: float,
    size: Sequence[int],
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Normal numbers."""
    return fill_normal(empty(size, dtype, layout, device, pin_memory), mean, std, generator)


def randint(
    high: int,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Integers of [0, high)."""
    return fill_integers(empty(size, dtype, layout, device, pin_memory), 0, high, None)


def randint_low(
    low: int,
    high: int,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Integers of [low, high)."""
    return fill_integers(empty(size, dtype, layout, device, pin_memory), low, high, None)


# ---------------------------------------------------------------- after the model of another tensor


def randint_like(
    self: torch.Tensor,
    high: int,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """Integers of [0, high), laid out as ``self``."""
    out = empty_after(self, dtype, layout, device, pin_memory, memory_format)
    return delivered(fill_integers(out, 0, high, None), device)


def randint_like_low(
    self: torch.Tensor,
    low: int,
    high: int,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """Integers of [low, high), laid out as ``self``."""
    out = empty_after(self, dtype, layout, device, pin_memory, memory_format)
    return delivered(fill_integers(out, low, high, None), device)
