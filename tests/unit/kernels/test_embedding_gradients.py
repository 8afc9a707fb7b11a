"""Gradients of embeddings: which way their rows are added up, and that each way is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, HALF, assert_as_eager, eager, kernel, values
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.kernels.embedding import segment_sums
from opsmith.kernels.embedding.segment_sums import Way

OP = "embedding_dense_backward.default"
#: Row 3 four times, row 6 twice, row 1 and the last once.
INDICES = torch.tensor([[3, 6, 3, 1], [3, 8, 6, 3]])


@pytest.fixture(params=list(Way))
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    """Each way, for whatever calls follow."""
    monkeypatch.setattr(segment_sums, "way_for", lambda *_args, **_kwargs: request.param)
    chosen: Way = request.param
    return chosen


def _assert_rounded_once(
    ours: torch.Tensor, grad: torch.Tensor, indices: torch.Tensor, padding: int, *, by_frequency: bool
) -> None:
    """As eager in float64: on a CPU it rounds a half type at each addition."""
    expected = eager(OP)(grad.double(), indices, ours.shape[0], padding, by_frequency)
    torch.testing.assert_close(ours, expected.to(ours.dtype))


@pytest.mark.parametrize("by_frequency", [False, True])
@pytest.mark.parametrize("padding", [-1, 1, 3])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rows_add_up_each_way(way: Way, dtype: torch.dtype, padding: int, *, by_frequency: bool) -> None:
    """Named once, twice and more often; a padding row, alone or not, stays zero."""
    if way is Way.SEGMENTS and dtype == torch.float64:
        pytest.skip("products of float64 are not served")
    grad = values(2, 4, 5, dtype=dtype)
    for indices in (INDICES, INDICES.int()):
        ours = kernel(OP)(grad, indices, 9, padding, by_frequency)
        _assert_rounded_once(ours, grad, indices, padding, by_frequency=by_frequency)


def test_gradients_and_indices_may_lie_anyhow(way: Way) -> None:
    """Turned, expanded, and with rows wider than a program takes at a time."""
    turned = values(700, 4, 2).permute(2, 1, 0)
    assert_as_eager(OP, turned, INDICES, 9, -1, False)
    assert_as_eager(OP, turned, INDICES.t().contiguous().t(), 9, 6, way is not Way.TABLE)
    assert_as_eager(OP, values(1, 1, 5).expand(2, 4, 5), INDICES, 9, -1, False)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("index_type", [torch.int64, torch.int32])
def test_without_indices_all_is_zero(index_type: torch.dtype) -> None:
    """No program looks at any."""
    assert_as_eager(OP, values(0, 5, dtype=torch.bfloat16), torch.empty(0, dtype=index_type), 9, -1, False)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", HALF)
def test_what_is_named_often_is_rounded_once(dtype: torch.dtype) -> None:
    """4096 and three hundred times 1, which a half type that adds up by itself would not notice."""
    grad, indices = torch.ones(302, 2, dtype=dtype), torch.full((302,), 7)
    grad[100], indices[0] = 4096, 2
    ours = kernel(OP)(grad, indices, 400, -1, False)
    assert [1, 1] == ours[2].tolist()
    assert ours[7].equal(torch.full((2,), 4396.0).to(dtype))
    assert [2, 2] == ours.count_nonzero(dim=0).tolist()
    assert kernel(OP)(grad, indices, 400, -1, True)[7].equal(torch.full((2,), 4396 / 301).to(dtype))


class Allocations(TorchDispatchMode):
    """Keeps the bytes of each new tensor, by type."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[tuple[torch.dtype, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call on."""
        result = func(*args, **(kwargs or {}))
        if "empty" in str(func):
            self.made.append((result.dtype, result.nbytes))
        return result


@pytest.mark.parametrize("by_frequency", [False, True])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("index_type", [torch.int64, torch.int32])
def test_a_large_table_of_a_half_type_has_no_larger_copy(
    dtype: torch.dtype, index_type: torch.dtype, monkeypatch: pytest.MonkeyPatch, *, by_frequency: bool
) -> None:
    """300,000 rows, of which few are named: beside the result, some bytes for each row and for each index."""
    monkeypatch.setattr(segment_sums, "SEGMENTS_BYTES", 1 << 20)
    rows, columns, tokens = 300_000, 16, 40
    indices = (torch.arange(tokens) ** 3 % rows // 7 * 7).to(index_type)
    indices[:5] = indices[9]
    grad, padding = values(tokens, columns, dtype=dtype), int(indices[20])
    with Allocations() as allocations:
        ours = kernel(OP)(grad, indices, rows, padding, by_frequency)
    assert (dtype, rows * columns * 2) == max(allocations.made, key=lambda made: made[1])
    assert ours.nbytes + 4 * rows + tokens * (4 + 4 * columns) == sum(size for _, size in allocations.made)
    _assert_rounded_once(ours, grad, indices, padding, by_frequency=by_frequency)


def test_a_bag_of_a_large_table_has_no_larger_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient, repeated in float32, is added up to the half type."""
    monkeypatch.setattr(segment_sums, "SEGMENTS_BYTES", 1 << 20)
    rows, columns = 300_000, 16
    indices, offsets = torch.tensor([5, 9, 5, 250_000, 1]), torch.tensor([0, 2])
    table = torch.zeros(rows, columns, dtype=torch.bfloat16)
    saved = torch.ops.aten._embedding_bag(table, indices, offsets)[1:]
    arguments = (indices, offsets, *saved, rows, False, 0, False, None, -1)
    grad = values(2, columns, dtype=torch.bfloat16)
    with Allocations() as allocations:
        ours = kernel("_embedding_bag_backward.default")(grad, *arguments)
    assert max(size for _, size in allocations.made) == ours.nbytes == table.nbytes
    torch.testing.assert_close(ours, eager("_embedding_bag_backward.default")(grad, *arguments))


def _way(dtype: torch.dtype, rows: int, columns: int, tokens: int, *, by_frequency: bool = False) -> Way:
    """Of a device with 132 multiprocessors."""
    grad = torch.empty(tokens, columns, dtype=dtype, device="meta")
    out = torch.empty(rows, columns, dtype=dtype, device="meta")
    indices = torch.empty(tokens, dtype=torch.int64, device="meta")
    shares = segment_sums._shares(rows, columns, tokens, grad.device, may_split=not by_frequency)
    return segment_sums.way_for(out, grad, indices, shares, by_frequency=by_frequency)


@pytest.mark.parametrize("dtype", HALF)
def test_large_results_are_summed_in_the_way_that_moves_the_fewest_bytes(dtype: torch.dtype) -> None:
    """By what is named in the traces: positions, words, items."""
    for rows, columns, tokens in ((2, 768, 8192), (1026, 1024, 2048), (2050, 4096, 2048), (30_000, 1024, 1024)):
        assert Way.SEGMENTS is _way(dtype, rows, columns, tokens) is _way(torch.float32, rows, columns, tokens)
    for rows, columns, tokens in ((10_000_000, 39, 4096), (151_936, 4096, 8192), (100_352, 1536, 1024)):
        assert Way.OWNERS is _way(dtype, rows, columns, tokens)
        # Zeros are written, and added to.
        assert Way.TABLE is _way(torch.float32, rows, columns, tokens) is _way(torch.float64, rows, columns, tokens)
        # Counts are of named rows, not of all elements.
        assert Way.OWNERS is _way(torch.float32, rows, columns, tokens, by_frequency=True)
    # A row of sums for each index would take more than a table of them.
    assert Way.TABLE is _way(dtype, 20_000, 64, 1_000_000)
