from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, tiles_of_a_device, values

NORMS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)
WIDE = torch.float64


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Triton's interpreter computes with numpy, which warns of infinities."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("norm", NORMS)
def test_cdist_and_its_gradient(norm: float) -> None:
    """Of every kind of norm, over more rows and elements than a tile has, and batches that broadcast."""
    x1, x2 = values(2, 1, 37, 9, dtype=WIDE), values(3, 40, 9, dtype=WIDE)
    x2[0, 3] = x1[0, 0, 5]  # No distance: the gradient is 0, not NaN.
    assert_as_eager("_cdist_forward.default", x1, x2, norm, None)
    distance = eager("_cdist_forward.default")(x1, x2, norm, None)
    grad = values(2, 3, 37, 40, dtype=WIDE)
    assert_as_eager("_cdist_backward.default", grad, x1.expand(2, 3, 37, 9), x2, norm, distance)


@pytest.mark.parametrize("norm", NORMS)
def test_pdist_and_its_gradient(norm: float) -> None:
    """Each pair once, in more than one tile."""
    x = values(35, 5, dtype=WIDE)
    assert_as_eager("_pdist_forward.default", x, norm)
    distance = eager("_pdist_forward.default")(x, norm)
    assert_as_eager("_pdist_backward.default", values(*distance.shape, dtype=WIDE), x, norm, distance)


def test_rows_in_any_layout_and_none() -> None:
    """Strides are those of the arguments; without elements everything is close."""
    assert_as_eager("_cdist_forward.default", values(5, 3).t(), values(7, 10)[:, ::2], 2.0, 1)
    assert_as_eager("_cdist_forward.default", values(3, 0), values(4, 0), 2.0, None)
    assert_as_eager("_cdist_forward.default", values(0, 2), values(4, 2), 1.0, None)
    assert_as_eager("_cdist_backward.default", values(3, 4), values(3, 0), values(4, 0), 2.0, values(3, 4))
    assert_as_eager("_pdist_forward.default", values(1, 3), 2.0)


def test_euclidean_distances_of_near_points_do_not_cancel() -> None:
    """As ``|a|^2 + |b|^2 - 2 a b`` does, which eager computes."""
    x = values(4, 3) + 1e4
    exact = torch.cdist(x.double(), x.double() + 0.25, compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(kernel("_euclidean_dist.default")(x, x + 0.25).double(), exact)


def test_negative_orders_are_refused() -> None:
    """As in eager."""
    with pytest.raises(ValueError, match="order"):
        kernel("_cdist_forward.default")(values(2, 2), values(2, 2), -1.0, None)
    with pytest.raises(ValueError, match="rows"):
        kernel("_cdist_forward.default")(values(2, 2), values(2, 3), 2.0, None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("norm", [0, 1, 2, 2.5, math.inf, -math.inf])
def test_dist_is_the_norm_of_the_difference(norm: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where several programs share it."""
    x, y = values(30, 700, dtype=dtype), values(700, dtype=dtype)
    assert_as_eager("dist.default", x, y, norm)
    tiles_of_a_device(monkeypatch)
    assert_as_eager("dist.default", x, y, norm)


def test_equal_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """One element tells; NaN is not equal to itself, and shapes count."""
    tiles_of_a_device(monkeypatch)
    x = values(100, 300)
    other = x.t().contiguous().t()
    assert kernel("equal.default")(x, other)
    other[99, 299] += 1
    assert not kernel("equal.default")(x, other)
    assert not kernel("equal.default")(x, x[:99])
    assert not kernel("equal.default")(torch.tensor([math.nan]), torch.tensor([math.nan]))
    assert kernel("equal.default")(values(0), values(0))
    with pytest.raises(TypeError, match="float32"):
        kernel("equal.default")(x, x.double())


@pytest.mark.parametrize("equal_nan", [False, True])
def test_close_tensors(*, equal_nan: bool) -> None:
    """The tolerance is relative to the second tensor; infinities are close to themselves alone."""
    cases = [
        (1.0, 1.0001),
        (1.0, 1.1),
        (math.inf, math.inf),
        (math.inf, -math.inf),
        (math.nan, math.nan),
        (1e30, math.inf),
    ]
    for x, y in cases:
        pair = torch.tensor([x, 0.0]), torch.tensor([y, 0.0])
        expected = eager("allclose.default")(*pair, 1e-3, 1e-8, equal_nan)
        assert expected == kernel("allclose.default")(*pair, 1e-3, 1e-8, equal_nan)
    assert kernel("allclose.default")(torch.tensor([3]), torch.tensor([4]), 0.25)
    with pytest.raises(ValueError, match="negative"):
        kernel("allclose.default")(values(1), values(1), -1.0)


def test_trace_in_any_layout_and_type() -> None:
    """Integers add up as int64."""
    assert_as_eager("trace.default", values(5, 7).t())
    assert_as_eager("trace.default", values(5, 5, dtype=torch.int32))
    with pytest.raises(ValueError, match="matrix"):
        kernel("trace.default")(values(3))


def test_cross_products_broadcast() -> None:
    """Along any dimension."""
    assert_as_eager("linalg_cross.default", values(4, 3, 2), values(1, 3, 2), dim=1)
    assert_as_eager("linalg_cross.default", values(3, 5).t(), values(5, 3))
    with pytest.raises(ValueError, match="3 elements"):
        kernel("linalg_cross.default")(values(2, 4), values(2, 4))
