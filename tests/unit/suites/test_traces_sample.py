"""A sample of a dataset: so many rows, drawn at random and spread over the ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.dataset_rows import row

from opsmith.core.run import Selection
from opsmith.suites import Skipped
from opsmith.suites.traces import Traces
from opsmith.traces.schema import Row, write_dataset


def rows_of(**counts: int) -> list[Row]:
    """So many rows of each op, op after op."""
    return [
        row(op_name=f"aten.{op}.default", args=f"((T([{size}], f32),), {{}})")
        for op, count in counts.items()
        for size in range(1, count + 1)
    ]


def sampled(
    tmp_path: Path, rows: Sequence[Row], sample: int | None, seed: int = 0, ops: Sequence[str] = ()
) -> list[tuple[str, int]]:
    """The rows that are asked, as op and size, op after op."""
    path = tmp_path / "rows.parquet"
    write_dataset(path, rows)
    suite = Traces()
    suite.select(Selection(dataset=str(path), sample=sample, sample_seed=seed), ops)
    found = []
    for entry in suite.entries("recorded", "cpu"):
        for call in suite.calls(entry, "recorded", "cpu", 1, lambda _op, _signature: True):
            assert not isinstance(call, Skipped), call.reason
            assert call.record is not None
            found.append((entry.removesuffix(".default"), call.record.args[0].shape[0]))  # type: ignore[union-attr]
    return found


def spread(found: Sequence[tuple[str, int]]) -> dict[str, int]:
    """How many rows there are of each op."""
    return dict(Counter(op for op, _ in found))


@pytest.mark.parametrize("sample", [1, 2, 3, 7, 10, 29, 30])
def test_a_sample_has_so_many_rows(tmp_path: Path, sample: int) -> None:
    """No more, no fewer, none of them twice."""
    found = sampled(tmp_path, rows_of(relu=10, exp=10, sin=10), sample)
    assert sample == len(found) == len(set(found))


def test_a_sample_is_spread_evenly_over_the_ops(tmp_path: Path) -> None:
    """However many rows each has."""
    found = sampled(tmp_path, rows_of(relu=50, exp=12, sin=20), 30)
    assert {"relu": 10, "exp": 10, "sin": 10} == spread(found)


def test_a_sample_is_drawn_from_the_ops_that_are_asked(tmp_path: Path) -> None:
    """By name, packet or wildcard; others take nothing of it."""
    rows = rows_of(relu=10, exp=10, sin=10, sinh=10)
    assert {"relu": 4, "sin": 4, "sinh": 4} == spread(sampled(tmp_path, rows, 12, ops=("relu", "sin*")))
    assert {"exp": 7} == spread(sampled(tmp_path, rows, 7, ops=("exp.default",)))


def test_ops_with_few_rows_give_all_that_they_have(tmp_path: Path) -> None:
    """The others share what is missing."""
    found = sampled(tmp_path, rows_of(relu=50, exp=2, sin=1, cos=50), 23)
    assert {"relu": 10, "exp": 2, "sin": 1, "cos": 10} == spread(found)


@pytest.mark.parametrize("sample", [11, 12, 13, 14])
def test_what_cannot_be_spread_evenly_differs_by_one(tmp_path: Path, sample: int) -> None:
    """Between ops that have enough."""
    counts = spread(sampled(tmp_path, rows_of(relu=20, exp=20, sin=20), sample)).values()
    assert sample == sum(counts)
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("sample", [None, 6, 100])
def test_a_sample_as_large_as_the_dataset_is_the_dataset(tmp_path: Path, sample: int | None) -> None:
    """So is none at all."""
    rows = rows_of(relu=4, exp=2)
    assert {("relu", 1), ("relu", 2), ("relu", 3), ("relu", 4), ("exp", 1), ("exp", 2)} == set(
        sampled(tmp_path, rows, sample)
    )


def test_the_same_seed_draws_the_same_rows(tmp_path: Path) -> None:
    """Whatever their order in the file: a row is known by its content."""
    rows = rows_of(relu=40, exp=40)
    assert sampled(tmp_path, rows, 10, seed=3) == sampled(tmp_path, rows, 10, seed=3)
    assert sampled(tmp_path, rows, 10, seed=3) == sampled(tmp_path, rows[::-1], 10, seed=3)


def test_another_seed_draws_other_rows(tmp_path: Path) -> None:
    """From all over the dataset."""
    rows = rows_of(relu=40, exp=40)
    draws = [sampled(tmp_path, rows, 10, seed=seed) for seed in range(20)]
    assert 20 == len({tuple(draw) for draw in draws})
    assert {size for draw in draws for _, size in draw} > set(range(5, 36))


def test_a_larger_sample_holds_the_smaller_one(tmp_path: Path) -> None:
    """So that a run can be widened."""
    rows = rows_of(relu=40, exp=40, sin=3)
    assert set(sampled(tmp_path, rows, 20)) < set(sampled(tmp_path, rows, 40))


def test_rows_that_are_not_asked_are_not_drawn(tmp_path: Path) -> None:
    """A sample has its size all the same."""
    excluded = [row(args=f"((T([{size}], f32),), {{}})", included_in_benchmark=False) for size in range(100, 150)]
    found = sampled(tmp_path, [*excluded, *rows_of(relu=6, exp=6)], 10)
    assert {"relu": 5, "exp": 5} == spread(found)
    assert max(size for _, size in found) < 100
