"""The tolerance of a result follows its dtype and what its suite declares."""

from __future__ import annotations

import pytest
import torch

from opsmith.evaluation.criteria.tolerance import tolerance_for


def test_strict_tolerances_are_those_of_torch_testing() -> None:
    """assert_close accepts a difference just inside of the tolerance and refuses one just outside."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        rtol, atol = tolerance_for("strict", dtype)
        expected = torch.zeros(1, dtype=dtype)
        torch.testing.assert_close(torch.full_like(expected, 0.9 * atol), expected)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(torch.full_like(expected, 1.1 * atol), expected)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(torch.full_like(expected, 1 + 2 * rtol + atol), torch.ones_like(expected))


def test_a_declared_tolerance_counts_only_where_it_is_looser() -> None:
    """A declaration can't make a dtype stricter than its own default."""
    assert (1e-3, 1e-5) == tolerance_for("strict", torch.float32, (1e-3, 1e-9))


def test_integers_have_no_tolerance() -> None:
    """Neither do bools."""
    assert (0.0, 0.0) == tolerance_for("strict", torch.int64, (1e-3, 1e-3))
    assert (0.0, 0.0) == tolerance_for("strict", torch.bool)


def test_the_public_harnesses_keep_their_published_tolerances() -> None:
    """One figure for every dtype there, two here."""
    assert (1e-2, 1e-2) == tolerance_for("backendbench", torch.float32, (1.0, 1.0))
    assert (1e-4, 1e-4) == tolerance_for("kernelbench", torch.float32)
    assert (1e-2, 1e-2) == tolerance_for("kernelbench", torch.bfloat16)


def test_an_unknown_tolerance_is_named_with_those_that_exist() -> None:
    """The message helps."""
    with pytest.raises(ValueError, match="no tolerance named 'loose'; there is: strict"):
        tolerance_for("loose", torch.float32)
