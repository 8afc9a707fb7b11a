"""Resampling to a size or by factors: the overloads ``vec``, which take both as lists and compute as ``default`` does.

Traffic: that of :mod:`.resampling` and :mod:`.antialiasing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from . import antialiasing, resampling


class Target(NamedTuple):
    """The sizes of the result, and a factor for each of them, or None where a size was asked for."""

    sizes: list[int]
    factors: list[float | None]


def target_of(
    x: torch.Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None, dimensions: int
) -> Target:
    """What a call asks for.

    Raises:
        ValueError: sizes and factors, or neither, or not one for each of the last ``dimensions`` dimensions.
    """
    given = output_size if scale_factors is None else scale_factors
    if given is None or (output_size is not None and scale_factors is not None):
        raise ValueError("give either the size of the output or scale factors")
    if len(given) != dimensions or x.ndim != dimensions + 2:
        raise ValueError(f"{list(given)} does not say what becomes of {dimensions} dimensions of {list(x.shape)}")
    if scale_factors is None:
        return Target([int(size) for size in given], [None] * dimensions)
    return Target(
        [int(size * factor) for size, factor in zip(x.shape[2:], scale_factors, strict=True)], list(scale_factors)
    )


def nearest(resample: Callable[..., torch.Tensor], dimensions: int) -> Callable[..., torch.Tensor]:
    """The overload ``vec`` of an op that takes nothing but sizes and factors."""

    def op(
        input: torch.Tensor,  # noqa: A002 - The schema's name.
        output_size: Sequence[int] | None,
        scale_factors: Sequence[float] | None,
    ) -> torch.Tensor:
        sizes, factors = target_of(input, output_size, scale_factors, dimensions)
        return resample(input, sizes, *factors)

    return op


def between_corners(resample: Callable[..., torch.Tensor], dimensions: int) -> Callable[..., torch.Tensor]:
    """The overload ``vec`` of an op that is also told whether corners lie on corners."""

    def op(
        input: torch.Tensor,  # noqa: A002 - The schema's name.
        output_size: Sequence[int] | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None,
    ) -> torch.Tensor:
        sizes, factors = target_of(input, output_size, scale_factors, dimensions)
        return resample(input, sizes, align_corners, *factors)

    return op


upsample_nearest1d_vec = nearest(resampling.upsample_nearest1d, 1)
upsample_nearest2d_vec = nearest(resampling.upsample_nearest2d, 2)
upsample_nearest3d_vec = nearest(resampling.upsample_nearest3d, 3)
upsample_nearest_exact1d_vec = nearest(resampling.upsample_nearest_exact1d, 1)
upsample_nearest_exact2d_vec = nearest(resampling.upsample_nearest_exact2d, 2)
upsample_nearest_exact3d_vec = nearest(resampling.upsample_nearest_exact3d, 3)
upsample_linear1d_vec = between_corners(resampling.upsample_linear1d, 1)
upsample_bilinear2d_vec = between_corners(resampling.upsample_bilinear2d, 2)
upsample_trilinear3d_vec = between_corners(resampling.upsample_trilinear3d, 3)
upsample_bicubic2d_vec = between_corners(resampling.upsample_bicubic2d, 2)
upsample_bilinear2d_aa_vec = between_corners(antialiasing.upsample_bilinear2d_aa, 2)
upsample_bicubic2d_aa_vec = between_corners(antialiasing.upsample_bicubic2d_aa, 2)
