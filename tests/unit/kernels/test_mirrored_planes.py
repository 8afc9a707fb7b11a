from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, small_tiles, values

BACKWARD = "reflection_pad2d_backward.default"
#: Left, right, top, bottom: pads of every size a plane of 5 x 11 has, none, and ones that cut off.
PADS = [(1, 1, 1, 1), (10, 10, 4, 4), (3, 0, 0, 2), (0, 0, 0, 0), (-1, 2, 1, -2)]


@pytest.mark.parametrize("padding", PADS)
def test_every_copy_comes_back(padding: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """In tiles of a few rows, of which only the first and the last have copies above and below."""
    small_tiles(monkeypatch, 32)
    left, right, top, bottom = padding
    dy = values(2, 3, 5 + top + bottom, 11 + left + right)
    dy[0, 0, 1, 1], dy[1, 2, -1, 3] = torch.nan, torch.inf
    assert_as_eager(BACKWARD, dy, values(2, 3, 5, 11), list(padding))
    assert_as_eager(BACKWARD, dy[0], values(3, 5, 11), list(padding))


def test_gradients_with_gaps_and_channels_last_are_those_of_eager() -> None:
    """The latter have no rows in memory, and are folded as any strided gradient."""
    wide = values(3, 6, 7, 20)
    for dy in (wide[1:, 2:5, :, 3:16], wide[1:, 2:5, :, 3:16].contiguous(memory_format=torch.channels_last)):
        assert_as_eager(BACKWARD, dy, values(2, 3, 5, 11), [1, 1, 1, 1])
    assert_as_eager(BACKWARD, values(0, 3, 7, 13), values(0, 3, 5, 11), [1, 1, 1, 1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_copies_are_rounded_once(dtype: torch.dtype) -> None:
    """From float32."""
    dy, x = values(2, 3, 13, 27).to(dtype), values(2, 3, 5, 11).to(dtype)
    exact = eager(BACKWARD)(dy.float(), x.float(), [8, 8, 4, 4])
    assert torch.equal(exact.to(dtype), kernel(BACKWARD)(dy, x, [8, 8, 4, 4]))
