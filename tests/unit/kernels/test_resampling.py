"""Gradients of resampling: what every input position is read by, at whole factors too, which place outputs exactly."""

from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, values

from opsmith.kernels.resampling.resampling import NEAREST, NEAREST_EXACT, Sampling, planned

FACTORS = (0.3, 0.5, 1.5, 2.0, 2.7, 3.0, 4.0, 8.0)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("given", [False, True])
def test_gradients_along_one_dimension_are_those_of_eager(factor: float, *, given: bool) -> None:
    """Outputs that lie before the input read its first position, and take no other one's readers away."""
    size = 11
    out, scale = int(size * factor), factor if given else None
    grad = values(2, 3, out, dtype=torch.float64)
    assert_as_eager("upsample_linear1d_backward.default", grad, [out], [2, 3, size], False, scale)
    assert_as_eager("upsample_linear1d_backward.default", grad, [out], [2, 3, size], True, scale)
    assert_as_eager("upsample_nearest1d_backward.default", grad, [out], [2, 3, size], scale)


@pytest.mark.parametrize("factors", [(2.0, 2.0), (8.0, 0.5), (1.5, 4.0)])
def test_gradients_of_images_are_those_of_eager(factors: tuple[float, float]) -> None:
    """At the borders as within, in both layouts."""
    size = (5, 7)
    out = [int(edge * factor) for edge, factor in zip(size, factors, strict=True)]
    grad = values(2, 3, *out, dtype=torch.float64)
    assert_as_eager("upsample_bicubic2d_backward.default", grad, out, [2, 3, *size], False, *factors)
    for gradient in (grad, grad.to(memory_format=torch.channels_last)):
        assert_as_eager("upsample_bilinear2d_backward.default", gradient, out, [2, 3, *size], False, *factors)


@pytest.mark.parametrize("factors", [(2, 2), (1, 4), (4, 1), (2, 4), (3, 2)])
@pytest.mark.parametrize("given", [False, True])
def test_gradients_of_repeated_positions_are_those_of_eager(factors: tuple[int, int], *, given: bool) -> None:
    """Each position is a block of outputs, or, with a factor of three, what the formula finds; in both layouts."""
    size, scales = (5, 7), factors if given else (None, None)
    out = [edge * factor for edge, factor in zip(size, factors, strict=True)]
    for dtype in (torch.float16, torch.float64):
        grad = values(2, 3, *out, dtype=dtype)
        for gradient in (grad, grad.to(memory_format=torch.channels_last), values(2, 3, *out[::-1], dtype=dtype).mT):
            assert_as_eager("upsample_nearest2d_backward.default", gradient, out, [2, 3, *size], *scales)
            assert_as_eager("_upsample_nearest_exact2d_backward.default", gradient, out, [2, 3, *size], *scales)
    volume = values(2, 3, 6, *out, dtype=torch.float64)
    assert_as_eager("upsample_nearest3d_backward.default", volume, [6, *out], [2, 3, 3, *size], None, *scales)


@pytest.mark.parametrize("sampling", [NEAREST, NEAREST_EXACT])
def test_which_positions_are_repeated_equally_often(sampling: Sampling) -> None:
    """Those that outputs are twice or four times of, unless a scale says something else."""
    assert (1, 2, 4) == planned((3, 5), (6, 20), (None, 4.0), sampling).repeats()
    for out, scales in (
        ((9, 20), (None, None)),
        ((6, 21), (None, None)),
        ((6, 20), (2.5, None)),
        ((3, 40), (None, 8.0)),
    ):
        assert planned((3, 5), out, scales, sampling).repeats() is None
    assert planned((3,), (6,), (None,), Sampling(2, 0.5, 0.5)).repeats() is None
