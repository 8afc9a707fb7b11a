"""What is passed to a kernel."""

from __future__ import annotations

from opsmith.kernels.launch import settled


def test_tuples_of_tuples_end_with_a_constant() -> None:
    """At every depth, for Triton 3.6; tuples of numbers alone stay as they are."""
    assert (1, 2) == settled((1, 2))
    assert ((1, 2), (3,), 1) == settled(((1, 2), (3,)))
    assert (((1,), 2, 1), ((3,), 4, 1), 1) == settled((((1,), 2), ((3,), 4)))
