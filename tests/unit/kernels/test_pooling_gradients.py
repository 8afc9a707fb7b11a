from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, small_tiles, values

from opsmith.kernels.common.windows import output_sizes, pooling_windows
from opsmith.kernels.pooling.max_pooling_boxes import boxes_of

BACKWARD = "max_pool3d_with_indices_backward.default"
#: Sizes, and kernel, stride, padding, dilation of windows that overlap: one apart, in planes only, ragged, dilated.
OVERLAPPING: list[tuple[tuple[int, ...], list[Any]]] = [
    ((2, 3, 9, 5, 7), [[3] * 3, [1] * 3, [1] * 3, [1] * 3, False]),
    ((2, 3, 4, 9, 11), [[1, 3, 3], [1, 2, 2], [0, 1, 1], [1] * 3, False]),
    ((1, 2, 19, 9, 11), [[4, 2, 3], [1, 3, 2], [2, 1, 1], [2, 1, 2], True]),
    ((3, 10, 6, 5), [[3] * 3, [2] * 3, [1] * 3, [1] * 3, True]),
]


@pytest.mark.parametrize(("shape", "settings"), OVERLAPPING)
def test_windows_that_overlap_share_their_maxima(
    shape: tuple[int, ...], settings: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole numbers have many equal maxima, and an input position sums the gradients of several windows."""
    small_tiles(monkeypatch, 64)
    x = values(*shape).round()
    y, indices = torch.ops.aten.max_pool3d_with_indices(x, *settings)
    dy = values(*y.shape)
    dy.view(-1)[3], dy.view(-1)[7] = torch.nan, torch.inf
    assert_as_eager(BACKWARD, dy, x, *settings, indices)


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradients_may_lie_otherwise_than_volumes(dtype: torch.dtype, *, is_turned: bool) -> None:
    """As after a concatenation: channels last, with a gap between images, from a row-major input; and back."""
    settings = [[1, 3, 3], [1, 2, 2], [0, 1, 1], [1] * 3, False]
    x = values(2, 6, 4, 9, 11)
    if is_turned:
        x = x.contiguous(memory_format=torch.channels_last_3d)
    y, indices = torch.ops.aten.max_pool3d_with_indices(x, *settings)
    wide = values(3, y.shape[1], *y.shape[2:])
    dy = wide[::2] if is_turned else wide.contiguous(memory_format=torch.channels_last_3d)[::2]
    if dtype == torch.float32:
        assert_as_eager(BACKWARD, dy, x, *settings, indices)
        return
    # One rounding at the end, where eager rounds every sum.
    dy, x = dy.to(dtype), x.to(dtype)
    exact = eager(BACKWARD)(dy.float(), x.float(), *settings, indices)
    torch.testing.assert_close(kernel(BACKWARD)(dy, x, *settings, indices), exact.to(dtype))


def test_a_box_of_eight_positions_loads_nine_windows_for_each() -> None:
    """Of 3 x 3 x 3 where each position lies in 27."""
    windows = pooling_windows(3, [3], [1], [1])
    boxes = boxes_of((8, 28, 28), output_sizes((8, 28, 28), windows, ceil_mode=False), windows)
    assert boxes is not None
    deep, high = boxes
    assert (8, 1, 1, -1) == (deep.size, high.size, high.step, high.lead)
    # Ten planes of windows touch eight of positions, unless they lie outside.
    assert (10, 3) == (len(deep.holds), len(high.holds))
    assert 3 * 8 == sum(map(sum, deep.holds))


def test_boxes_are_as_high_as_windows_are_apart() -> None:
    """The second row of two lies in two windows of three, the first in one."""
    windows = pooling_windows(3, [1, 3, 3], [1, 2, 2], [0, 1, 1])
    boxes = boxes_of((8, 28, 28), (8, 14, 14), windows)
    assert boxes is not None
    assert ((True, True), (False, True)) == boxes[1].holds


@pytest.mark.parametrize(("kernel", "stride"), [([2], [2]), ([5], [1]), ([9, 3, 3], [1, 9, 1])])
def test_windows_apart_and_too_many_ones_are_left_to_single_positions(kernel: list[int], stride: list[int]) -> None:
    """Those of 5 x 5 x 5 would be 300 to unroll."""
    windows = pooling_windows(3, kernel, stride, [0])
    assert boxes_of((30, 30, 30), output_sizes((30, 30, 30), windows, ceil_mode=False), windows) is None
