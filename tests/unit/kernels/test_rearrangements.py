"""Copies of views: shapes and layouts that a view itself would refuse."""

from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, values

LAST_FIRST = (2, 1, 0)


@pytest.mark.parametrize("size", [[20, 3], [4, 15], [60], [3, 5, 4], [3, 1, 5, 4], [-1, 2]])
def test_a_copy_in_another_shape_asks_nothing_of_strides(size: list[int]) -> None:
    """Eager's falls back to a copy of the whole where a view does not exist."""
    assert_as_eager("view_copy.default", values(4, 5, 3).permute(LAST_FIRST), size)
    assert_as_eager("view_copy.default", values(3, 5, 4), size)


def test_elements_of_16_bytes_are_repeated_as_pairs() -> None:
    """No integer of Triton's has as many bits as a complex number of two float64."""
    z = torch.randn(3, 4, dtype=torch.complex128)
    for repeats in ([2, 3], [2, 1, 3], [0, 2]):
        assert_as_eager("repeat.default", z, repeats)
        assert_as_eager("repeat.default", z.t(), repeats)
    assert_as_eager("repeat.default", torch.tensor(1 + 2j, dtype=torch.complex128), [2])
