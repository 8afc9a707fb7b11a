from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, assert_as_eager, kernel, values

from opsmith.kernels.embedding import embedding_bags

INDICES = torch.tensor([0, 1, 2, 3, 4, 5, 1, 1])
OFFSETS = torch.tensor([0, 3, 3, 7])
MODES = [0, 1, 2]
OPS = ["_embedding_bag.default", "_embedding_bag_forward_only.default"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("padding", [-1, 1])
def test_bags_and_what_their_gradients_need(op: str, mode: int, padding: int) -> None:
    """One is empty; the last offset may be the end."""
    for last in (False, True):
        offsets = torch.tensor([0, 3, 3, 8]) if last else OFFSETS
        for table in (values(6, 5), values(5, 6).t()):
            assert_as_eager(op, table, INDICES, offsets, False, mode, False, None, last, padding)


def test_the_greatest_of_an_empty_bag_is_where_the_devices_eager_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA in row -1, on a CPU in row 0; so is that of a bag of nothing but padding."""
    assert [-1, 0] == [embedding_bags._no_row(torch.device(name)) for name in ("cuda", "cpu")]
    monkeypatch.setattr(embedding_bags, "_no_row", lambda _device: -1)
    table, indices = values(6, 5), torch.tensor([0, 1, 1, 1, 2])
    for op in OPS:
        places = kernel(op)(table, indices, torch.tensor([0, 2, 2, 4]), False, 2, False, None, False, 1)[3]
        assert places[1:3].eq(-1).all()
        assert places[0].eq(0).all()
        assert places[3].eq(2).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_in_every_type(dtype: torch.dtype) -> None:
    """With factors, and without."""
    for factors in (None, values(8, dtype=dtype)):
        assert_as_eager(OPS[0], values(6, 5, dtype=dtype), INDICES, OFFSETS, False, 0, False, factors)


def test_int32_indices_and_long_bags() -> None:
    """A bag of more rows than are read at a time."""
    indices = (torch.arange(50) % 6).int()
    assert_as_eager(OPS[0], values(6, 5), indices, torch.tensor([0, 1]).int(), False, 1)


def test_long_bags_are_read_in_larger_groups() -> None:
    """By their mean length; a bag ends within a group, and a padded row is left out of any."""
    assert [8, 8, 16, 32, 32] == [embedding_bags._group(length) for length in (0, 1, 9, 17, 1000)]
    indices, factors = torch.arange(100) % 6, values(100, dtype=torch.float64)
    offsets = torch.tensor([0, 3, 3, 70])
    assert_as_eager(OPS[0], values(6, 5, dtype=torch.float64), indices, offsets, False, 0, False, factors, False, 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [-1, 1])
def test_gradients_of_the_table(mode: int, padding: int) -> None:
    """An empty bag has none."""
    table = values(6, 5)
    saved = torch.ops.aten._embedding_bag(table, INDICES, OFFSETS, False, mode, False, None, False, padding)[1:]
    arguments = (INDICES, OFFSETS, *saved, 6, False, mode, False, None, padding)
    assert_as_eager("_embedding_bag_backward.default", values(4, 5), *arguments)


def test_gradients_of_factors() -> None:
    """Zero for a row that does not count."""
    table, factors = values(6, 5), values(8)
    saved = torch.ops.aten._embedding_bag(table, INDICES, OFFSETS, False, 0, False, factors, False, 1)
    for owners in (saved[1], torch.empty(0, dtype=torch.int64)):
        arguments = (values(4, 5), table, INDICES, OFFSETS, owners, 0, 1)
        assert_as_eager("_embedding_bag_per_sample_weights_backward.default", *arguments)


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, float("inf")])
def test_named_rows_are_scaled_down(norm: float) -> None:
    """Once, however often they are named; rows that are small enough stay as they are."""
    names = torch.tensor([[0, 2], [2, 5]])
    ours, eagers = values(6, 5), values(6, 5)
    with np.errstate(all="ignore"):
        assert kernel("embedding_renorm_.default")(ours, names, 2.0, norm) is ours
    torch.testing.assert_close(ours, torch.embedding_renorm_(eagers, names, 2.0, norm))
