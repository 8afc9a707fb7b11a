"""Kernels that write where another argument may lie: parts of one storage that do not meet are no overlap."""

from __future__ import annotations

import pytest
import torch

from opsmith.kernels.copies.rearrangements import copy_, meets
from opsmith.kernels.indexing.scattering import index_add_

X = torch.arange(12.0)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (slice(0, 4), slice(4, 8), False),
        (slice(0, 4), slice(3, 7), True),
        (slice(0, 12, 2), slice(1, 12, 2), True),  # They have gaps, in which the other one lies.
        (slice(0, 4), slice(4, 4), False),
        (slice(2, 2), slice(0, 12), False),
    ],
)
def test_pieces_of_memory_meet(one: slice, other: slice, expected: bool) -> None:  # noqa: FBT001 - a parameter.
    """From the first element to the last; of nothing there is nothing to meet."""
    assert expected == meets(X[one], X[other])
    assert not meets(X[one], X.clone()[other])


def test_a_part_is_copied_to_the_next_one() -> None:
    """As eager mode does it; it refuses parts that overlap."""
    x = X.clone()
    copy_(x[:4], x[4:8])
    assert [4, 5, 6, 7, 4, 5, 6, 7] == x[:8].tolist()
    for copy in (copy_, torch.ops.aten.copy_.default):
        with pytest.raises(RuntimeError):
            copy(x[:4], x[2:6])


def test_a_part_is_added_to_the_next_one() -> None:
    """And what has gaps, eager mode takes as it comes: it is left to it."""
    x, index = X.clone(), torch.tensor([1, 0])
    index_add_(x[:2], 0, index, x[2:4])
    assert [3, 3, 2, 3] == x[:4].tolist()
    with pytest.raises(RuntimeError, match="share memory"):
        index_add_(x[:2], 0, index, x[1:3])
    with pytest.raises(NotImplementedError):
        index_add_(x[0:4:2], 0, index, x[1:5:2])
