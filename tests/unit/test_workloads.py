"""The dataset that comes with opsmith: what it promises, and that every row can be asked."""

from __future__ import annotations

import functools

import pytest

from opsmith.suites.valid_inputs import traced_record
from opsmith.traces.schema import SHIPPED_PATH, Row, read_dataset, read_raw_rows
from opsmith.traces.statistics import count
from opsmith.traces.validation import validate


@functools.cache
def rows() -> list[Row]:
    """All of it."""
    return read_dataset(SHIPPED_PATH)


@pytest.mark.slow
def test_every_row_is_valid() -> None:
    """It parses, its fields agree and torch has its op."""
    assert [] == validate(read_raw_rows(SHIPPED_PATH), advance=lambda _done: None)


@pytest.mark.slow
def test_every_row_has_values() -> None:
    """No input is left out because nobody knows what to put into it."""
    for row in rows():
        traced_record(row.call(source=row.uuid), seed=1)


@pytest.mark.slow
def test_it_holds_more_than_the_public_set() -> None:
    """Which has 155 models, 180 ops, 18,208 inputs and 19 % strided ones."""
    found = count(rows(), source="shipped")
    assert found.models >= 155
    assert found.families["timm"] >= 67
    assert found.families["transformers"] >= 45
    assert found.models - found.families["timm"] - found.families["transformers"] >= 43
    assert found.ops >= 180
    assert found.inputs >= 18_208
    assert found.strided >= 0.19 * found.inputs
