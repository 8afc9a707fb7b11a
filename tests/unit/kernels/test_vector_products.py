from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, assert_as_eager, kernel, tiles_of_a_device, values


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.uint8])
def test_products_in_every_type(dtype: torch.dtype) -> None:
    """Half types are summed in float32; integers wrap."""
    assert_as_eager("mv.default", values(5, 7, dtype=dtype), values(7, dtype=dtype))
    assert_as_eager("dot.default", values(9, dtype=dtype), values(9, dtype=dtype))


def test_matrices_in_every_layout() -> None:
    """Transposed, strided, expanded, empty."""
    for a in (values(5, 7).t().contiguous().t(), values(5, 14)[:, ::2], values(1, 7).expand(5, 7), values(5, 7)):
        assert_as_eager("mv.default", a, values(14)[::2])
    assert_as_eager("mv.default", values(3, 0), values(0))
    assert_as_eager("mv.default", values(0, 3), values(3))
    assert_as_eager("dot.default", values(0), values(0))


@pytest.mark.parametrize("shape", [(5,), (1,), ()])
def test_addends_broadcast_and_beta_zero_reads_none(shape: tuple[int, ...]) -> None:
    """NaN in an addend that does not count is not seen."""
    assert_as_eager("addmv.default", values(*shape), values(5, 7), values(7), beta=0.5, alpha=2)
    nan = torch.full(shape, float("nan"))
    assert_as_eager("addmv.default", nan, values(5, 7), values(7), beta=0, alpha=2)
    if shape == (5,):  # Eager forgets to broadcast to rows of nothing.
        assert_as_eager("addmv.default", values(5), values(5, 0), values(0), beta=3)


@pytest.mark.parametrize("shape", [(2, 40000), (1, 40000), (40000, 3)])
def test_long_rows_are_split(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    """A second launch scales and adds; integers add up exactly."""
    tiles_of_a_device(monkeypatch)
    a, b = values(*shape, dtype=torch.int32), values(shape[1], dtype=torch.int32)
    assert_as_eager("addmv.default", values(shape[0], dtype=torch.int32), a, b, beta=2, alpha=3)
    assert_as_eager("mv.default", a.t().contiguous().t(), b)


def test_outer_products_take_the_layout_of_the_addend() -> None:
    """As an elementwise op does."""
    for c in (values(4, 3).t(), values(3, 4), values(4), values(1, 1), values(3, 4, dtype=torch.int64)):
        assert_as_eager("addr.default", c, values(3), values(4), beta=0.5, alpha=2.0)
    assert_as_eager("addr.default", torch.full((3, 4), float("nan")), values(3), values(4), beta=0)


def test_what_eager_refuses() -> None:
    """Two types, shapes that do not match."""
    with pytest.raises(TypeError):
        kernel("mv.default")(values(3, 4), values(4, dtype=torch.float64))
    with pytest.raises(ValueError, match="match"):
        kernel("dot.default")(values(3), values(4))
    with pytest.raises(ValueError, match="fit"):
        kernel("addmv.default")(values(2), values(3, 4), values(4))
