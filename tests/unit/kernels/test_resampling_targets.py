"""Resampling whose target is a size or factors: as eager's, and refused where a call says both or neither."""

from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, kernel, values

NEAREST = [f"{name}{dims}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for dims in (1, 2, 3)]
BETWEEN_CORNERS = {
    "upsample_linear1d": 1,
    "upsample_bilinear2d": 2,
    "upsample_trilinear3d": 3,
    "upsample_bicubic2d": 2,
    "_upsample_bilinear2d_aa": 2,
    "_upsample_bicubic2d_aa": 2,
}


def image(dimensions: int) -> torch.Tensor:
    """A batch of two, of three channels."""
    return values(2, 3, *(5, 6, 4)[:dimensions], dtype=torch.float64)


@pytest.mark.parametrize("name", NEAREST)
def test_the_nearest_are_found_for_sizes_and_for_factors(name: str) -> None:
    """A factor places outputs otherwise than the size that it makes."""
    dimensions = int(name[-2])
    x = image(dimensions)
    assert_as_eager(f"{name}.vec", x, [7, 4, 9][:dimensions], None)
    assert_as_eager(f"{name}.vec", x, None, [1.7, 0.6, 2.0][:dimensions])


@pytest.mark.parametrize(("name", "dimensions"), BETWEEN_CORNERS.items())
@pytest.mark.parametrize("align_corners", [False, True])
def test_neighbours_are_weighed_for_sizes_and_for_factors(name: str, dimensions: int, *, align_corners: bool) -> None:
    """Corners may lie on corners, which leaves a factor nothing to say."""
    x = image(dimensions)
    assert_as_eager(f"{name}.vec", x, [7, 4, 9][:dimensions], align_corners, None)
    assert_as_eager(f"{name}.vec", x, None, align_corners, [1.7, 0.6, 2.0][:dimensions])


@pytest.mark.parametrize(("sizes", "factors"), [(None, None), ([7, 4], [1.7, 0.6]), ([7], None), (None, [1.7] * 3)])
def test_a_target_is_a_size_or_factors_for_every_dimension(sizes: list[int], factors: list[float]) -> None:
    """Neither, both, or one for another number of dimensions are refused."""
    with pytest.raises(ValueError, match="either|dimensions"):
        kernel("upsample_nearest2d.vec")(image(2), sizes, factors)
