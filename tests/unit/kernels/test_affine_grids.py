from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, assert_as_eager, kernel, small_tiles, values

SIZES = ([3, 1, 5, 7], [2, 4, 3, 4, 6], [2, 1, 1, 9])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_grid(size: list[int], dtype: torch.dtype, *, align: bool) -> None:
    """In the plane and in space; a dimension of one position has the coordinate 0."""
    dims = len(size) - 2
    assert_as_eager("affine_grid_generator.default", values(size[0], dims, dims + 1, dtype=dtype), size, align)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_grid_is_rounded_once(dtype: torch.dtype) -> None:
    """Eager rounds the coordinates of half types first: here they are held against float64."""
    theta = values(2, 3, 2, dtype=dtype).mT
    expected = torch.ops.aten.affine_grid_generator(theta.double(), [2, 1, 30, 21], False)
    actual = kernel("affine_grid_generator.default")(theta, [2, 1, 30, 21], False)
    torch.testing.assert_close(actual, expected.to(dtype))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("align", [True, False])
def test_the_gradient_of_theta(size: list[int], monkeypatch: pytest.MonkeyPatch, *, align: bool) -> None:
    """A sum over the places, a few at a time."""
    small_tiles(monkeypatch, 16)
    grad = values(*size[2:], size[0], len(size) - 2).movedim(-2, 0)
    assert_as_eager("affine_grid_generator_backward.default", grad, size, align)


def test_shapes_that_do_not_fit_are_refused() -> None:
    """Theta has a row for each dimension of the output."""
    with pytest.raises(ValueError, match=r"\[2, 2, 3\]"):
        kernel("affine_grid_generator.default")(values(2, 3, 4), [2, 1, 4, 4], False)
