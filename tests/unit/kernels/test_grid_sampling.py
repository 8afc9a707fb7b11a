from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, values

from opsmith.kernels.resampling import grid_sampling


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("align_corners", [False, True])
def test_gradients_of_sampled_volumes_are_those_of_eager(mode: int, padding: int, align_corners: bool) -> None:  # noqa: FBT001
    """Of the volume and of the grid, half of which lies outside."""
    x, grad = values(2, 3, 5, 4, 6, dtype=torch.float64), values(2, 3, 3, 4, 5, dtype=torch.float64)
    grid = values(2, 3, 4, 5, 3, dtype=torch.float64, scale=1.5)
    assert_as_eager("grid_sampler_3d_backward.default", grad, x, grid, mode, padding, align_corners, [True, True])


def test_what_gathers_at_the_border_of_a_volume_is_not_lost() -> None:
    """Numbers that cancel among smaller ones, which float32 would lose."""
    op = "grid_sampler_3d_backward.default"
    x, grid = torch.zeros(1, 1, 2, 2, 2), torch.full((1, 1, 1, 4000, 3), 9.0)
    grad = torch.full((1, 1, 1, 1, 4000), 1e-4)
    grad[..., ::4], grad[..., 1::4] = 1e4, -1e4
    expected, _ = eager(op)(grad.double(), x.double(), grid.double(), 0, 1, False, [True, True])
    ours, _ = kernel(op)(grad, x, grid, 0, 1, False, [True, True])
    torch.testing.assert_close(ours, expected.float())


@pytest.mark.parametrize("channels", [1, 3, 9, 16])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_thread_keeps_its_place_for_several_channels(
    mode: int, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the blocks of a device: programs share channels that no block of theirs divides."""
    monkeypatch.setattr(grid_sampling, "_blocks", lambda _places, rows: (rows, 32))
    x, grid = values(2, channels, 5, 6, dtype=torch.float64), values(2, 3, 7, 2, dtype=torch.float64)
    assert_as_eager("grid_sampler_2d.default", x, grid, mode, 0, False)
    grad = values(2, channels, 3, 7, dtype=torch.float64)
    assert_as_eager("grid_sampler_2d_backward.default", grad, x, grid, mode, 0, False, [True, True])
