"""Indices: any right answer passes, and nothing else."""

from __future__ import annotations

import pytest
import torch
from tests.evaluation_calls import WithoutUnsigned, call_of, judge

from opsmith.evaluation.comparisons.compare import compare

aten = torch.ops.aten
TIES = torch.tensor([[3.0, 1.0, 3.0, 1.0]])


def test_ties_of_an_unstable_sort_may_come_in_any_order() -> None:
    """Unless the caller asks for a stable one."""
    values = torch.tensor([[1.0, 1.0, 3.0, 3.0]])
    for indices in ([[1, 3, 0, 2]], [[3, 1, 2, 0]]):
        assert judge(aten.sort.default, (TIES,), (values, torch.tensor(indices))).passed
    swapped = (values, torch.tensor([[3, 1, 0, 2]]))
    assert not judge(aten.sort.stable, (TIES,), swapped, stable=True).passed
    assert judge(aten.sort.stable, (TIES,), swapped, stable=False).passed


def test_an_index_may_not_be_given_twice() -> None:
    """Though both places hold the value."""
    values = torch.tensor([[1.0, 1.0, 3.0, 3.0]])
    finding = judge(aten.sort.default, (TIES,), (values, torch.tensor([[1, 1, 0, 2]])))
    assert "given twice" in finding.detail


def test_an_index_has_to_point_at_the_value_and_into_the_input() -> None:
    """An index out of range is named."""
    assert judge(aten.kthvalue.default, (TIES, 4, 1), (torch.tensor([3.0]), torch.tensor([2]))).passed
    assert judge(aten.kthvalue.default, (TIES, 4, 1), (torch.tensor([3.0]), torch.tensor([0]))).passed
    assert not judge(aten.max.dim, (TIES, 1), (torch.tensor([3.0]), torch.tensor([1]))).passed
    finding = judge(aten.max.dim, (TIES, 1), (torch.tensor([3.0]), torch.tensor([4])))
    assert "index 4 at [0] is outside of [0, 4)" in finding.detail


def test_wrong_values_fail_under_right_indices() -> None:
    """Values are compared too."""
    assert not judge(aten.max.dim, (TIES, 1), (torch.tensor([3.1]), torch.tensor([2]))).passed


def test_argmax_names_the_first_maximum() -> None:
    """Torch's documentation promises the first of equal elements; of several NaNs it promises nothing."""
    x = torch.tensor([1.0, 3.0, 3.0, 2.0])
    assert judge(aten.argmax.default, (x,), torch.tensor(1)).passed
    assert not judge(aten.argmax.default, (x,), torch.tensor(2)).passed
    assert not judge(aten.argmax.default, (x,), torch.tensor(3)).passed
    assert not judge(aten.min.dim, (-x, 0), (torch.tensor(-3.0), torch.tensor(2))).passed
    unordered = torch.tensor([1.0, torch.nan, torch.nan])
    assert judge(aten.argmax.default, (unordered,), torch.tensor(2)).passed
    assert judge(aten.argmax.default, (torch.tensor(5.0), 0), torch.tensor(0)).passed


def test_topk_without_an_order_is_a_set() -> None:
    """With one it is a sequence."""
    x = torch.tensor([4.0, 2.0, 3.0])
    turned = (torch.tensor([3.0, 4.0]), torch.tensor([2, 0]))
    assert judge(aten.topk.default, (x, 2, -1, True, False), turned).passed
    assert not judge(aten.topk.default, (x, 2), turned).passed
    wrong = (torch.tensor([3.0, 2.0]), torch.tensor([2, 1]))
    assert not judge(aten.topk.default, (x, 2, -1, True, False), wrong).passed


def test_a_running_maximum_points_backwards() -> None:
    """An equal value further on is not seen yet, and of those seen it is the last."""
    x = torch.tensor([2.0, 2.0, 1.0])
    values = torch.tensor([2.0, 2.0, 2.0])
    assert judge(aten.cummax.default, (x, 0), (values, torch.tensor([0, 1, 1]))).passed
    assert not judge(aten.cummax.default, (x, 0), (values, torch.tensor([1, 1, 1]))).passed
    assert not judge(aten.cummax.default, (x, 0), (values, torch.tensor([0, 0, 1]))).passed


def test_a_mode_is_any_most_frequent_value() -> None:
    """A less frequent one is none."""
    x = torch.tensor([5.0, 7.0, 5.0, 7.0, 9.0])
    assert judge(aten.mode.default, (x,), (torch.tensor(7.0), torch.tensor(1))).passed
    assert not judge(aten.mode.default, (x,), (torch.tensor(9.0), torch.tensor(4))).passed


def test_pooling_points_at_the_first_maximum_of_its_window() -> None:
    """Flat within the plane. The gradient goes there, so another one trains another model; of several NaNs any."""

    def points_at(x: list[list[float]], place: int) -> bool:
        values = torch.tensor([[x]])
        result = values.amax((2, 3), keepdim=True)
        index = torch.tensor([[[[place]]]])
        return judge(aten.max_pool2d_with_indices.default, (values, [2, 2]), (result, index)).passed

    assert points_at([[0.0, 1.0], [1.0, 1.0]], 1)
    assert not points_at([[0.0, 1.0], [1.0, 1.0]], 3)
    assert not points_at([[0.0, 1.0], [1.0, 1.0]], 0)
    assert points_at([[torch.nan, 1.0], [torch.nan, 1.0]], 0)
    assert points_at([[torch.nan, 1.0], [torch.nan, 1.0]], 2)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_ties_of_unsigned_numbers_may_come_in_any_order(dtype: torch.dtype) -> None:
    """Torch 2.11 gathers none of more than 8 bits."""
    data, values = TIES.to(dtype), torch.tensor([[1, 1, 3, 3]], dtype=dtype)
    call = call_of(aten.sort.default, data)
    expected = [values, torch.tensor([[1, 3, 0, 2]])]
    for order, passes in (([[3, 1, 2, 0]], True), ([[3, 0, 1, 2]], False)):
        with WithoutUnsigned():
            finding = compare(call, [expected], [[values, torch.tensor(order)]], tolerance="strict")
        assert passes == finding.passed


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_draws_of_unsigned_numbers_are_ranked(dtype: torch.dtype) -> None:
    """One after another, and not all of them one number."""
    overload, data = aten.random.to, torch.zeros(512, dtype=dtype)
    call = call_of(overload, data, 1000)
    draws = [[torch.randint(0, 1000, (512,)).to(dtype)] for _ in range(64)]
    for got, passes in ((draws[:32], True), ([[data]] * 32, False)):
        with WithoutUnsigned():
            assert passes == compare(call, draws[32:], got, tolerance="strict").passed
