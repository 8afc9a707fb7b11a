"""Resampling to a size or by factors: the overloads ``vec``, which take both as lists and compute as ``default`` does.

Traffic: that of :mod:`.resampling` and :mod:`.antialiasing`.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def upsample_nearest1d_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.resampling.upsample_nearest1d`."""
    sizes, factors = target_of(input, output_size, scale_factors, 1)
    return resampling.upsample_nearest1d(input, sizes, *factors)


def upsample_nearest2d_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.resampling.upsample_nearest2d`."""
    sizes, factors = target_of(input, output_size, scale_factors, 2)
    return resampling.upsample_nearest2d(input, sizes, *factors)


def upsample_nearest3d_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.resampling.upsample_nearest3d`."""
    sizes, factors = target_of(input, output_size, scale_factors, 3)
    return resampling.upsample_nearest3d(input, sizes, *factors)


def upsample_nearest_exact1d_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.resampling.upsample_nearest_exact1d`."""
    sizes, factors = target_of(input, output_size, scale_factors, 1)
    return resampling.upsample_nearest_exact1d(input, sizes, *factors)


def upsample_nearest_exact2d_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.resampling.upsample_nearest_exact2d`."""
    sizes, factors = target_of(input, output_size, scale_factors, 2)
    return resampling.upsample_nearest_exact2d(input, sizes, *factors)


def upsample_nearest_exact3d_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.resampling.upsample_nearest_exact3d`."""
    sizes, factors = target_of(input, output_size, scale_factors, 3)
    return resampling.upsample_nearest_exact3d(input, sizes, *factors)


def upsample_linear1d_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.resampling.upsample_linear1d`."""
    sizes, factors = target_of(input, output_size, scale_factors, 1)
    return resampling.upsample_linear1d(input, sizes, align_corners, *factors)


def upsample_bilinear2d_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.resampling.upsample_bilinear2d`."""
    sizes, factors = target_of(input, output_size, scale_factors, 2)
    return resampling.upsample_bilinear2d(input, sizes, align_corners, *factors)


def upsample_trilinear3d_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.resampling.upsample_trilinear3d`."""
    sizes, factors = target_of(input, output_size, scale_factors, 3)
    return resampling.upsample_trilinear3d(input, sizes, align_corners, *factors)


def upsample_bicubic2d_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.resampling.upsample_bicubic2d`."""
    sizes, factors = target_of(input, output_size, scale_factors, 2)
    return resampling.upsample_bicubic2d(input, sizes, align_corners, *factors)


def upsample_bilinear2d_aa_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.antialiasing.upsample_bilinear2d_aa`."""
    sizes, factors = target_of(input, output_size, scale_factors, 2)
    return antialiasing.upsample_bilinear2d_aa(input, sizes, align_corners, *factors)


def upsample_bicubic2d_aa_vec(
    input: torch.Tensor,  # noqa: A002 - The schema's name.
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> torch.Tensor:
    """As :func:`.antialiasing.upsample_bicubic2d_aa`."""
    sizes, factors = target_of(input, output_size, scale_factors, 2)
    return antialiasing.upsample_bicubic2d_aa(input, sizes, align_corners, *factors)
