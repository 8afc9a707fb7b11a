from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, assert_as_eager, layouts, small_tiles, tiles_of_a_device, values

from opsmith.kernels.scans.scans import PRODUCT, SUM, Scan

NAN, INFINITE = float("nan"), float("inf")
SUMS = ["cumsum.default", "cumprod.default", "logcumsumexp.default"]
PLACES = ["cummax.default", "cummin.default"]
TIES = torch.tensor([[1.0, 1.0, NAN, 2.0, NAN], [2.0, 2.0, -INFINITE, -0.0, 0.0], [INFINITE, 1.0, INFINITE, 3.0, 0.0]])


@pytest.mark.parametrize("op", [*SUMS, *PLACES])
@pytest.mark.parametrize("dim", [0, -1])
def test_scans_agree_with_eager_in_every_layout(op: str, dim: int) -> None:
    """The result is row-major whatever the input is."""
    for x in layouts(3, 2, 5).values():
        assert_as_eager(op, x, dim)


@pytest.mark.parametrize("op", SUMS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_type(op: str, dtype: torch.dtype) -> None:
    """Half types are summed in float32."""
    assert_as_eager(op, values(4, 7, dtype=dtype, scale=1.0), 1)


@pytest.mark.parametrize("op", [*SUMS, *PLACES])
@pytest.mark.parametrize(("shape", "dim"), [((), 0), ((0,), 0), ((3, 0), 0), ((3, 0), 1), ((5, 0, 0), 2), ((1,), 0)])
def test_scalars_and_empty_tensors(op: str, shape: tuple[int, ...], dim: int) -> None:
    """One element is itself; none is none."""
    assert_as_eager(op, values(*shape), dim)


@pytest.mark.parametrize("op", ["cumsum.default", "cumprod.default", *PLACES])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_integers(op: str, dtype: torch.dtype) -> None:
    """Sums and products are int64; the greatest and the smallest keep their type."""
    assert_as_eager(op, values(3, 6, dtype=dtype), 1)


def test_the_asked_type_is_that_of_every_element() -> None:
    """Elements are converted before they are added."""
    assert_as_eager("cumsum.default", torch.full((4,), 1.5), 0, dtype=torch.int32)
    assert_as_eager("cumsum.default", torch.arange(9), 0, dtype=torch.float64)


@pytest.mark.parametrize("op", PLACES)
def test_nan_stays_and_the_last_of_equals_wins(op: str) -> None:
    """By rows and by columns."""
    for dim in (0, 1):
        assert_as_eager(op, TIES, dim)


def test_infinities_of_logcumsumexp() -> None:
    """Nothing is minus infinity, and infinities do not cancel."""
    x = torch.tensor([-INFINITE, -INFINITE, 1.0, INFINITE, INFINITE, NAN, 3.0])
    assert_as_eager("logcumsumexp.default", x, 0)


@pytest.mark.parametrize("op", [*SUMS, *PLACES])
@pytest.mark.parametrize("dim", [0, 1])
def test_long_rows_are_walked_and_split(monkeypatch: pytest.MonkeyPatch, op: str, dim: int) -> None:
    """Tiles of 16: in steps of one program, then in splits, whose totals are joined."""
    shape = (1, 100) if dim else (100, 1)
    small_tiles(monkeypatch, 16)
    assert_as_eager(op, values(*shape, scale=1.0), dim)
    wide = (3, 100) if dim else (100, 3)
    assert_as_eager(op, values(*wide, scale=1.0), dim)
    monkeypatch.setattr("opsmith.kernels.scans.scans.multiprocessors", lambda _device: 4)
    monkeypatch.setattr("opsmith.kernels.common.matrix.multiprocessors", lambda _device: 4)
    small_tiles(monkeypatch, 8)
    assert_as_eager(op, values(*shape, scale=1.0), dim)


@pytest.mark.parametrize("dim", [0, 1])
def test_the_cut_of_a_device(monkeypatch: pytest.MonkeyPatch, dim: int) -> None:
    """Splits of 4096 columns, and tiles of 64 rows that are neighbours in memory; integers add up exactly."""
    tiles_of_a_device(monkeypatch)
    for shape in ((2, 40000), (40000, 2), (300, 70)):
        assert_as_eager("cumsum.default", values(*shape, dtype=torch.int32), dim)


@pytest.mark.parametrize("scan", [SUM, PRODUCT])
def test_what_a_scan_of_numbers_begins_with_is_an_integer(scan: tuple[Scan, float]) -> None:
    """Triton makes no integer tile of a float."""
    assert isinstance(scan[1], int)
