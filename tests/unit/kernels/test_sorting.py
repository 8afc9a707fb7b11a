from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, kernel, values

from opsmith.kernels.sorting import radix_selection, ranking, sorting

NAN = float("nan")
TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
]
INTERPRETER = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nothing but short selections is ranked, tiles are small; and which selections and rankings were made."""
    made: list[str] = []

    def told(name: str) -> None:
        function = getattr(sorting, name)

        def and_tell(*args: object) -> object:
            made.append(name)
            return function(*args)

        monkeypatch.setattr(sorting, name, and_tell)

    told("select_first")
    told("rank")
    monkeypatch.setattr(sorting, "TILE", 16)
    monkeypatch.setattr(radix_selection, "TILE", 32)
    monkeypatch.setattr(radix_selection, "RESIDENT", 6)
    monkeypatch.setattr(ranking, "SHORTEST", 8)
    monkeypatch.setattr(ranking, "BLOCK", 8)
    monkeypatch.setattr(ranking, "WIDTH", 16)
    monkeypatch.setattr(ranking, "MOST_COMPARISONS", 2 * 16 * 16)
    return made


def stable(x: torch.Tensor, k: int, dim: int, *, largest: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The first ``k`` elements of a stable sort."""
    found, where = torch.sort(x, dim=dim, descending=largest, stable=True)
    return found.narrow(dim, 0, k), where.narrow(dim, 0, k)


def assert_topk(x: torch.Tensor, k: int, dim: int = -1, *, largest: bool = True) -> None:
    """The kernel selects as a stable sort does."""
    expected = stable(x, k, dim, largest=largest)
    torch.testing.assert_close(kernel("topk.default")(x, k, dim, largest), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_first_of_long_rows_are_selected(small: list[str], dtype: torch.dtype) -> None:
    """In every type; those of 64 bits are merged. Many of the values are equal."""
    x = values(2, 200 if dtype.itemsize < 8 else 72, dtype=dtype)
    if not dtype.is_floating_point:
        x = x * 5 - (0 if dtype == torch.uint8 else 3)
    assert_topk(x, 12)
    assert_topk(x, 12, largest=False)
    assert (["select_first", "rank"] * 2 if dtype.itemsize < 8 else []) == small


def test_a_selection_that_is_too_long_to_rank_is_merged(small: list[str]) -> None:
    """Of one row and of several."""
    assert_topk(values(300), 100)
    assert_topk(values(3, 300, dtype=torch.float16), 40, largest=False)
    assert ["select_first"] * 2 == small


def test_of_equal_elements_the_first_are_taken(small: list[str]) -> None:
    """Whatever programs and tiles they are in; 0.0 and -0.0 are equal, and NaN comes before infinity."""
    assert_topk(torch.zeros(2, 250), 15)
    special = torch.tensor([NAN, float("inf"), -float("inf"), 0.0, -0.0, 1e-7, 65504.0, -65504.0]).repeat(30)
    for dtype in INTERPRETER:
        assert_topk(special.to(dtype), 16)
        assert_topk(special.to(dtype), 16, largest=False)
    assert small.count("select_first") == 7


def test_rows_that_are_not_dense_are_selected(small: list[str]) -> None:
    """With gaps between elements and between rows; columns are merged."""
    wide = values(3, 2, 500)
    assert_topk(wide[..., ::2], 7)
    assert_topk(wide[..., :300], 9)
    assert ["select_first"] * 2 == small
    assert_topk(wide[..., :100].transpose(0, 2).contiguous(), 9, 0)
    assert ["select_first"] * 2 == small


def test_few_and_short_rows_are_ranked(small: list[str]) -> None:
    """In any layout, whole or in part, also by the halves of 64-bit keys."""
    for dtype in (torch.float16, torch.float64, torch.int64):
        x = values(2, 13, dtype=dtype)
        assert_topk(x, 5)
        assert_topk(x.t(), 5, 0, largest=False)
        assert_as_eager("sort.stable", x, stable=True, dim=1, descending=True)
    assert {"rank"} == set(small)


def test_a_kth_value_is_selected(small: list[str]) -> None:
    """And the elements behind it are not sorted."""
    x = torch.randperm(400, generator=torch.Generator().manual_seed(0)).float().view(2, 200)
    assert_as_eager("kthvalue.default", x, 11, 1)
    assert ["select_first", "rank"] == small
