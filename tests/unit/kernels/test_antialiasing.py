from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, values


@pytest.mark.parametrize("op", ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_planes_that_shrink_and_grow_are_those_of_eager(op: str, align_corners: bool) -> None:  # noqa: FBT001
    """With their gradients, and with scales that are given."""
    x, dy = values(2, 3, 7, 12, dtype=torch.float64), values(2, 3, 11, 5, dtype=torch.float64)
    for scales in ((None, None), (1.6, 0.4)):
        assert_as_eager(f"{op}.default", x, [11, 5], align_corners, *scales)
        assert_as_eager(f"{op}_backward.default", dy, [11, 5], [2, 3, 7, 12], align_corners, *scales)


@pytest.mark.parametrize("op", ["_upsample_bilinear2d_aa.default", "_upsample_bicubic2d_aa.default"])
def test_weights_far_from_the_edge_are_as_accurate_as_at_it(op: str) -> None:
    """A centre at some 2,000 has 12 bits behind the point in float32."""
    x = values(1, 1, 1, 3000)
    exact = eager(op)(x.double(), [1, 2200], False)
    torch.testing.assert_close(kernel(op)(x, [1, 2200], False), exact.float(), atol=5e-6, rtol=1e-5)
