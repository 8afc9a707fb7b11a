from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, kernel, layouts, values

NAN = float("nan")
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.uint8]
MEDIANS = ["median.dim", "nanmedian.dim"]


def distinct(*shape: int) -> torch.Tensor:
    """Values none of which is there twice, so that every sort agrees on their places."""
    return torch.randperm(torch.Size(shape).numel(), generator=torch.Generator().manual_seed(0)).view(shape)


@pytest.mark.parametrize("dtype", TYPES)
def test_places_in_every_type(dtype: torch.dtype) -> None:
    """The lower one of two middle elements is the median."""
    x = distinct(4, 6).to(dtype)
    for op in MEDIANS:
        assert_as_eager(op, x, 1)
        assert_as_eager(op, x, 0, True)
    assert_as_eager("kthvalue.default", x, 2, 0)
    assert_as_eager("kthvalue.default", x, 6, 1, True)


def test_every_layout() -> None:
    """Results are row-major."""
    for x in layouts(3, 4, 5).values():
        assert_as_eager("median.default", x)
        assert_as_eager("nanmedian.default", x)
        if 0 not in x.stride():
            assert_as_eager("kthvalue.default", x, 3, 1)


def test_nan_is_greatest_and_a_median_is_the_first_one() -> None:
    """Unless it is left out; a row of nothing else is NaN."""
    x = torch.tensor([[3.0, NAN, 1.0, NAN, 2.0], [5.0, 4.0, 3.0, 2.0, 1.0]])
    for op in MEDIANS:
        assert_as_eager(op, x, 1)
        assert torch.full((3,), NAN).median(0)[0].isnan() == kernel(op)(torch.full((3,), NAN), 0)[0].isnan()
    assert_as_eager("kthvalue.default", x, 3, 1)
    assert_as_eager("median.default", x)
    assert_as_eager("nanmedian.default", x)


def test_scalars_and_nothing() -> None:
    """One element is the median of itself; nothing has NaN, or none along a dimension."""
    for op in ("median.default", "nanmedian.default"):
        assert_as_eager(op, values())
        assert_as_eager(op, values(0))
    for op in (*MEDIANS, "mode.default"):
        assert_as_eager(op, values(), 0)
        assert_as_eager(op, values(3, 0), 0)
        with pytest.raises(IndexError):
            kernel(op)(values(3, 0), 1)
    with pytest.raises(ValueError, match="4-th"):
        kernel("kthvalue.default")(values(3), 4)


def test_the_mode_is_the_smallest_of_the_most_frequent() -> None:
    """With the place of its last one; a NaN equals nothing."""
    rows = [[2.0, 1.0, 1.0, 2.0, 3.0], [5.0, 5.0, 5.0, 1.0, 1.0], [3.0, 4.0, 5.0, 6.0, 7.0], [2.0, NAN, NAN, 8.0, 9.0]]
    x = torch.tensor(rows)
    assert_as_eager("mode.default", x, 1)
    assert_as_eager("mode.default", x[:3].to(torch.int64), 1, True)
    assert_as_eager("mode.default", torch.tensor([True, False, True]), 0)


def test_rows_longer_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted in runs; a run of equals crosses tiles."""
    monkeypatch.setattr("opsmith.kernels.sorting.sorting.TILE", 16)
    monkeypatch.setattr("opsmith.kernels.sorting.order_statistics.INTERPRETED_TILE", 8)
    x = distinct(3, 100)
    assert_as_eager("median.dim", x, 1)
    assert_as_eager("kthvalue.default", x.float(), 70, 1)
    counted = torch.tensor([0] * 15 + [1] * 40 + [2] * 30 + [3] * 15)[distinct(100)]
    value, index = kernel("mode.default")(counted, 0)
    assert 1 == value == counted[index]
    assert counted.eq(1).nonzero().max() == index
