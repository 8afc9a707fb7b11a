"""Gradients of resampling: what every input position is read by, at whole factors too, which place outputs exactly."""

from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, values

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
