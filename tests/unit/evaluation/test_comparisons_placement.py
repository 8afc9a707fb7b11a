"""Placement: any of the values that go to a place, and no other."""

from __future__ import annotations

import pytest
import torch
from tests.evaluation_calls import judge

aten = torch.ops.aten
#: Of two planes; both name a place twice.
INDICES = torch.tensor([[4, 1, 4], [0, 5, 0]]).view(2, 1, 3)
VALUES = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, torch.nan]]).view(2, 1, 3)


def _unpooled(first: float, second: float) -> torch.Tensor:
    """With one value each at the places that are named twice."""
    return torch.tensor([[[0.0, 2.0, 0.0], [0.0, first, 0.0]], [[second, 0.0, 0.0], [0.0, 0.0, 5.0]]])


@pytest.mark.parametrize("first", [1.0, 3.0])
@pytest.mark.parametrize("second", [4.0, torch.nan])
def test_any_value_that_goes_to_a_place_is_right(first: float, second: float) -> None:
    """Eager keeps the last on a CPU, and either on a GPU."""
    answer = _unpooled(first, second)
    assert judge(aten.max_unpool2d.default, (VALUES, INDICES, [2, 3]), answer).passed
    volumes = (tensor.view(1, 2, 1, 1, 3) for tensor in (VALUES, INDICES))
    args = (*volumes, [1, 2, 3], [1, 1, 1], [0, 0, 0])
    assert judge(aten.max_unpool3d.default, args, answer.view(1, 2, 1, 2, 3)).passed


def test_no_other_value_is_right() -> None:
    """Nor is another plane's, one beside, or one where none belongs."""
    args = (VALUES, INDICES, [2, 3])
    for answer in (_unpooled(2.0, 4.0), _unpooled(4.0, 4.0), _unpooled(0.0, 4.0), _unpooled(1.0, 3.0)):
        assert not judge(aten.max_unpool2d.default, args, answer).passed
    stray = _unpooled(1.0, 4.0)
    stray[0, 0, 0] = 3.0
    finding = judge(aten.max_unpool2d.default, args, stray)
    assert finding.detail.startswith("1 of 12 elements differ where only equality is right; first at [0, 0, 0]")
