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


@pytest.mark.parametrize("op", ["_upsample_bilinear2d_aa_backward.default", "_upsample_bicubic2d_aa_backward.default"])
@pytest.mark.parametrize(("size", "out"), [((2, 3), (2, 30)), ((9, 16), (9, 16)), ((1, 1), (9, 9)), ((3, 20), (18, 3))])
def test_gradients_reach_every_output_that_reads_a_position(
    op: str, size: tuple[int, int], out: tuple[int, int]
) -> None:
    """Of more outputs than a lane has weights for at once, of one, and of channels that lie side by side."""
    for align_corners in (False, True):
        dy = values(2, 2, *out, dtype=torch.float64)
        arguments = (list(out), [2, 2, *size], align_corners)
        expected = eager(op)(dy, *arguments)
        torch.testing.assert_close(kernel(op)(dy, *arguments), expected)
        dy = dy.contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(kernel(op)(dy, *arguments), expected)
