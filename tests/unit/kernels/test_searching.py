from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, kernel, values

from opsmith.kernels.sorting import searching

NAN = float("nan")
BOUNDARIES = torch.tensor([1.0, 2.0, 2.0, 3.0])


@pytest.mark.parametrize("right", [False, True])
def test_equals_nan_and_the_ends(*, right: bool) -> None:
    """NaN comes after everything."""
    x = torch.tensor([NAN, 2.0, 0.0, 9.0, 3.0, 1.0])
    assert_as_eager("searchsorted.Tensor", BOUNDARIES, x, right=right, out_int32=right)
    assert_as_eager("bucketize.Tensor", x.view(2, 3).t(), BOUNDARIES, right=right)
    assert_as_eager("searchsorted.Tensor", torch.tensor([1.0, NAN, NAN]), x, right=right)
    assert_as_eager("searchsorted.Scalar", BOUNDARIES, 2.0, right=right)
    assert_as_eager("bucketize.Scalar", 2, BOUNDARIES, right=right)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float64, torch.uint8])
def test_types_are_promoted_before_they_are_compared(dtype: torch.dtype) -> None:
    """Integers among floats, and the other way round."""
    x = torch.tensor([2, 1, 7, 0]).to(dtype)
    assert_as_eager("searchsorted.Tensor", BOUNDARIES, x)
    assert_as_eager("searchsorted.Tensor", BOUNDARIES.to(dtype), torch.tensor([1.5, 2.5]))


def test_rows_of_sequences_in_any_layout() -> None:
    """Each row of elements has its own sequence; a sorter tells its order."""
    raw = values(2, 3, 8)
    rows, order = raw.sort(-1)
    x = values(2, 3, 5)
    assert_as_eager("searchsorted.Tensor", rows, x)
    assert_as_eager("searchsorted.Tensor", rows.transpose(0, 2).contiguous().transpose(0, 2), x)
    assert_as_eager("searchsorted.Tensor", raw, x, sorter=order)


def test_nothing_to_search_or_to_be_searched() -> None:
    """No boundaries: everything comes first."""
    assert_as_eager("searchsorted.Tensor", values(0), values(3))
    assert_as_eager("searchsorted.Tensor", BOUNDARIES, values(0))


def test_contradictions_are_refused() -> None:
    """As in eager."""
    with pytest.raises(ValueError, match="side"):
        kernel("searchsorted.Tensor")(BOUNDARIES, values(3), right=True, side="left")
    with pytest.raises(ValueError, match="sequences"):
        kernel("searchsorted.Tensor")(values(2, 3), values(3, 3))


def test_histograms_hold_both_ends() -> None:
    """NaN and what lies outside are not counted; without a range, the data's own."""
    x = torch.tensor([0.0, 1.0, 2.0, 1.0, 4.0, 5.0, NAN])
    assert_as_eager("histc.default", x, 4, 0, 4)
    assert_as_eager("histc.default", x[:-1], 5)
    assert_as_eager("histc.default", torch.ones(3), 4)
    assert_as_eager("histc.default", values(0), 4)
    with pytest.raises(ValueError, match="bins"):
        kernel("histc.default")(x, 0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_histograms_of_integers_round_nothing(dtype: torch.dtype) -> None:
    """Eager serves them on a GPU only, where ``(x - min) * bins / (max - min)`` is a division of whole numbers."""
    x = torch.tensor([0, 3, 3, 7, 50, 99, 100, 101, 120]).to(dtype)
    for bins, low, high in ((7, 3, 100), (100, 0, 100), (7, 3.9, 100.9), (5, 0, 0)):
        first, last = (int(low), int(high)) if high else (0, 120)
        expected = [0] * bins
        for value in x.tolist():
            if first <= value <= last:
                expected[min((value - first) * bins // (last - first), bins - 1)] += 1
        torch.testing.assert_close(kernel("histc.default")(x, bins, low, high), torch.tensor(expected, dtype=dtype))
    same = torch.zeros(3, dtype=dtype)
    torch.testing.assert_close(kernel("histc.default")(same, 4), torch.tensor([0, 0, 3, 0], dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize(("numel", "bins"), [(2, 8), (4096, 8), (4097, 8), (1024, 256), (1025, 256), (300, 700)])
def test_histograms_of_one_program_and_of_several(dtype: torch.dtype, numel: int, bins: int) -> None:
    """Few elements are counted by one program; many bins by no program for itself."""
    x = (values(numel, dtype=torch.float32) * 30).round().to(dtype)
    expected = torch.zeros(bins, dtype=torch.int64)
    inside = x[(x >= -100) & (x <= 28)].long()
    expected.index_add_(0, ((inside + 100) * bins // 128).clamp(max=bins - 1), torch.ones_like(inside))
    torch.testing.assert_close(kernel("histc.default")(x, bins, -100, 28), expected.to(dtype))


def test_a_program_counts_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tensor with more tiles than programs are worth, here two; the last one's reach beyond it."""
    monkeypatch.setattr(searching, "_PROGRAMS", 2)
    assert_as_eager("histc.default", torch.linspace(-1, 1, 5 * searching.BLOCK + 5), 16, -0.75, 0.5)
    assert_as_eager("histc.default", torch.linspace(-1, 1, 4 * searching.BLOCK + 5), 16, -0.75, 0.5)


def test_bins_of_large_integers_are_exact() -> None:
    """Neighbours that float64 cannot tell apart."""
    x = (1 << 60) + torch.arange(4)
    counts = kernel("histc.default")(x, 3, 1 << 60, (1 << 60) + 3)
    torch.testing.assert_close(counts, torch.tensor([1, 1, 2]))
