"""Writes where an index tensor says, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import HALF, assert_as_eager, eager, kernel, layouts, values

from opsmith.kernels.indexing import scattering


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_of_every_layout_are_put_to(dtype: torch.dtype, *, accumulate: bool) -> None:
    """Places are counted in row-major order, whatever the strides."""
    index, source = torch.tensor([[0, -1], [7, 3]]).t(), values(2, 4, dtype=dtype)[:, ::2]
    for name, x in layouts(3, 4, dtype=dtype).items():
        assert_as_eager("put.default", x, index, source, accumulate)
        if name != "expanded":
            ours, eagers = x.clone(), x.clone()
            assert kernel("put_.default")(ours, index, source, accumulate) is ours
            torch.testing.assert_close(ours, eager("put_.default")(eagers, index, source, accumulate))
    assert_as_eager("put.default", values(3, 2).t(), torch.tensor([], dtype=torch.int64), torch.empty(0), accumulate)


FEW = torch.tensor([5, 0, 5, 29])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8])
def test_few_elements_of_a_large_tensor_are_combined(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only they go through a workspace, which nothing else is written to; some are named twice, some from the end."""
    copies: list[torch.Size] = []
    monkeypatch.setattr(scattering, "map_into", lambda out, *_: copies.append(out.shape))
    index, source, rows = FEW[:, None].expand(4, 3), values(4, 3, dtype=dtype), values(4, 6, dtype=dtype)
    for x in (values(40, 6, dtype=dtype), values(40, 12, dtype=dtype)[:, ::2]):
        assert_as_eager("scatter_add.default", x, 0, index, source)
        assert_as_eager("scatter_reduce.two", x, 0, index, source, "prod")
        assert_as_eager("index_put.default", x, [FEW - 30, None], rows, True)
        assert_as_eager("index_add.default", x, 0, FEW, rows, alpha=2)
    for ours in (values(40, 6, dtype=dtype), values(6, 40, dtype=dtype).t(), values(40, 12, dtype=dtype)[:, ::2]):
        expected = eager("scatter_add.default")(ours, 0, index, source)
        assert kernel("scatter_add_.default")(ours, 0, index, source) is ours
        torch.testing.assert_close(ours, expected)
    assert not copies


def test_few_sums_of_half_types_are_rounded_once() -> None:
    """64 times a 4096th: each alone would be lost in bfloat16."""
    x, source = torch.ones(1000, dtype=torch.bfloat16), torch.full((64,), 2.0**-12, dtype=torch.bfloat16)
    kernel("index_add_.default")(x, 0, torch.full((64,), 8), source)
    assert [1, 1 + 2.0**-6, 1] == x[7:10].tolist()


#: Of eleven slices: some are named several times, some never.
NAMED = torch.tensor([0, 3, 3, 5, 0, 3, 7, 7, 7, 1, 2, 2, 2, 9, 9, 3])


def expanded(dim: int, *shape: int) -> torch.Tensor:
    """The names of slices along a dimension, for every element of a source of that shape."""
    return NAMED.view([-1 if d == dim else 1 for d in range(len(shape))]).expand(shape)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what is written where indices say; what is worth it for large tensors only is done for all."""
    shapes: list[tuple[int, ...]] = []
    write: Callable[..., None] = scattering.write_indexed

    def recording(work: torch.Tensor, source: Any, places: scattering.Places, *args: Any, **kwargs: Any) -> None:
        shapes.append(places.shape)
        write(work, source, places, *args, **kwargs)

    monkeypatch.setattr(scattering, "write_indexed", recording)
    monkeypatch.setattr(scattering, "MANY", 1)
    return shapes


REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")
TYPES = (torch.float32, torch.float64, *HALF, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@pytest.mark.parametrize(("dtype", "dim"), [(torch.float32, 1), *((dtype, 0) for dtype in TYPES)])
def test_slices_that_are_named_are_noted_once_each(
    dtype: torch.dtype, dim: int, written: list[tuple[int, ...]]
) -> None:
    """For what reductions without the elements of ``self`` begin with, and for the divisors of means."""
    shape = [3, 2, 9]
    shape[dim] = 16
    # Small integers, of which half types hold all sums and products, in eager too.
    x = values(*(11 if size == 16 else size for size in shape), dtype=dtype)
    x = x.round() if dtype.is_floating_point else x
    source = torch.ones(shape, dtype=dtype)
    source[..., ::2] += 1
    for include_self in (False, True):
        for reduce in REDUCTIONS:
            written.clear()
            index = expanded(dim, *shape)
            assert_as_eager("scatter_reduce.two", x, dim, index, source, reduce, include_self=include_self)
            notes = [(16,)] if reduce == "mean" or not include_self else []
            assert [*notes, tuple(shape)] == written
            if reduce != "sum":
                assert_as_eager("index_reduce.default", x, dim, NAMED, source, reduce, include_self=include_self)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_nan_in_slices_that_are_noted_go_where_they_go_in_eager(reduce: str, written: list[tuple[int, ...]]) -> None:
    """Those of ``self`` are left out where a slice is named, and stay elsewhere."""
    x, source = values(11, 9), values(16, 9)
    x[3, 1] = x[4, 2] = source[3, 4] = float("nan")
    source[7] = float("-inf")
    assert_as_eager("scatter_reduce.two", x, 0, expanded(0, 16, 9), source, reduce, include_self=False)
    assert [(16,), (16, 9)] == written


@pytest.mark.parametrize("dtype", [*TYPES, torch.bool])
def test_a_number_is_written_to_noted_slices_in_one_pass(dtype: torch.dtype, written: list[tuple[int, ...]]) -> None:
    """Out of place and in place, in every layout, and with names that count from the end."""
    for name, x in layouts(11, 9, dtype=dtype).items():
        for op, names in (("scatter.value", expanded(0, 16, 9)), ("index_fill.int_Scalar", NAMED - 11)):
            torch.testing.assert_close(kernel(op)(x, 0, names, 3), eager(op)(x, 0, names, 3))
        if name != "expanded":
            ours, eagers = x.clone(), x.clone()
            assert kernel("scatter_.value")(ours, 0, expanded(0, 16, 9), 3) is ours
            torch.testing.assert_close(ours, eager("scatter_.value")(eagers, 0, expanded(0, 16, 9), 3))
    assert {(16,)} == set(written)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_names_of_a_part_of_each_slice_reach_no_further(dtype: torch.dtype, written: list[tuple[int, ...]]) -> None:
    """An index may be smaller than ``self`` elsewhere, and its names may differ from column to column."""
    x, source = values(11, 9, dtype=dtype), values(16, 9, dtype=dtype)
    differing = torch.stack([NAMED.roll(n) for n in range(9)], 1)
    for index in (expanded(0, 16, 5), expanded(0, 16, 9)[::2, :1], differing, expanded(1, 9, 16).t()[:, :8]):
        assert_as_eager("scatter.value", x, 0, index, 3)
        for reduce in REDUCTIONS:
            assert_as_eager("scatter_reduce.two", x, 0, index, source, reduce, include_self=False)
    assert (16,) not in written


def test_small_tensors_are_written_each_time_they_are_named() -> None:
    """A launch that notes the names would take longer."""
    x, index = values(11, 9), expanded(0, 16, 9)
    places = scattering._along(x, 0, index)
    assert scattering.marked(x, places) is None
    assert_as_eager("scatter_reduce.two", x, 0, index, values(16, 9), "amax", include_self=False)
