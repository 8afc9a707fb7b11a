"""Maps of errors over the index space."""

from __future__ import annotations

import math

import torch

from opsmith.evaluation.comparisons.error_map import MOST_COLUMNS, MOST_ROWS, error_map
from opsmith.evaluation.criteria.tolerance import Tolerance

EXACT = Tolerance(1e-6, 1e-6)


def test_the_tail_of_rows_is_its_last_cells() -> None:
    """Rows of 1000 in cells of 16: 62 whole ones, and one of 8."""
    expected = torch.randn(4, 25, 1000)
    got = expected.clone()
    got[..., 992:] += 1
    found = error_map(2, expected, got, EXACT)
    assert found is not None
    assert (2, (4, 25, 1000)) == (found.result, found.shape)
    assert (found.row_step, found.column_step) == (4, 16)
    assert found.rows <= MOST_ROWS
    assert found.columns <= MOST_COLUMNS
    wrong = torch.tensor(found.wrong).view(found.rows, found.columns)
    assert bool((wrong[:, -1] == 1).all())
    assert not wrong[:, :-1].any()


def test_one_element_is_a_share_of_its_cell() -> None:
    """An off-by-one at a border shows as a pale cell, not as a wrong tile."""
    expected = torch.zeros(128, 128)
    got = expected.clone()
    got[77, 64] = 1.0
    found = error_map(0, expected, got, EXACT)
    assert found is not None
    assert 1 == sum(share > 0 for share in found.wrong)
    assert math.isclose(1 / (found.row_step * found.column_step), max(found.wrong), rel_tol=1e-4)
    assert found.worst is not None
    assert found.worst > 1e5


def test_nan_has_no_bound_and_equal_ones_are_no_errors() -> None:
    """As a comparison has it."""
    expected = torch.tensor([1.0, math.nan, math.inf, 2.0])
    assert error_map(0, expected, expected.clone(), EXACT) is None
    found = error_map(0, expected, torch.tensor([math.nan, math.nan, -math.inf, 2.0]), EXACT)
    assert found is not None
    assert (1.0, 0.0, 1.0, 0.0) == found.wrong
    assert found.worst is None


def test_integers_scalars_and_empty_results() -> None:
    """Whatever a result may be; other shapes are no matter of elements."""
    found = error_map(0, torch.tensor(3), torch.tensor(4), EXACT)
    assert found is not None
    assert ((), 1, 1, (1.0,)) == (found.shape, found.rows, found.columns, found.wrong)
    assert error_map(0, torch.empty(0, 3), torch.empty(0, 3), EXACT) is None
    assert error_map(0, torch.ones(3), torch.ones(4), EXACT) is None
    assert error_map(0, torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool), EXACT) is None
    half = error_map(0, torch.ones(3, dtype=torch.complex64), torch.tensor([1, 1j, 1], dtype=torch.complex64), EXACT)
    assert half is not None
    assert (0.0, 1.0, 0.0) == half.wrong
