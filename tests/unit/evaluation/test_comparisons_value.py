"""Values: elementwise, on <= only, special values to themselves."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from tests.evaluation_calls import call_of, judge

from opsmith.core.verdict import Status
from opsmith.evaluation.comparisons.compare import compare

aten = torch.ops.aten


def test_one_wrong_element_in_many_fails_and_is_named() -> None:
    """A norm over the output would hide it."""
    x = torch.linspace(0, 1, 10_000).reshape(100, 100)
    candidate = x.exp()
    candidate[7, 9] += 1e-3
    finding = judge(aten.exp.default, (x,), candidate)
    assert Status.WRONG_VALUE == finding.status
    assert "1 of 10000 elements are off; worst at [7, 9]" in finding.detail
    assert finding.figures is not None
    assert 1 == finding.figures.mismatched


@pytest.mark.parametrize("special", [torch.nan, torch.inf, -torch.inf])
def test_a_special_value_never_passes_for_a_number(special: float) -> None:
    """``error > tolerance`` is False for NaN, and ``inf <= inf`` is True."""
    x = torch.zeros(4)
    candidate = x.exp()
    candidate[2] = special
    assert not judge(aten.exp.default, (x,), candidate).passed


def test_a_number_never_passes_for_a_special_value() -> None:
    """Not even the largest one for infinity."""
    x = torch.tensor([1000.0, torch.nan])
    largest = torch.finfo(torch.float32).max
    assert judge(aten.exp.default, (x,), torch.tensor([torch.inf, torch.nan])).passed
    assert not judge(aten.exp.default, (x,), torch.tensor([largest, torch.nan])).passed
    assert not judge(aten.exp.default, (x,), torch.tensor([-torch.inf, torch.nan])).passed
    assert not judge(aten.exp.default, (x,), torch.tensor([torch.inf, 0.0])).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_eager_passes_and_two_percent_off_fails(dtype: torch.dtype) -> None:
    """In every floating dtype."""
    x = torch.linspace(0.5, 2, 50).to(dtype)
    assert judge(aten.exp.default, (x,), x.exp()).passed
    assert not judge(aten.exp.default, (x,), x.exp() * 1.04).passed


def test_an_empty_result_passes() -> None:
    """There is nothing to be wrong about."""
    assert judge(aten.exp.default, (torch.empty(0, 3),), torch.empty(0, 3)).passed


def test_integers_of_a_value_op_are_exact() -> None:
    """One off by one fails."""
    x = torch.arange(5)
    assert judge(aten.mul.Tensor, (x, x), x * x).passed
    assert not judge(aten.mul.Tensor, (x, x), x * x + (x == 3)).passed


def test_the_result_that_is_wrong_is_named() -> None:
    """Of several results."""
    x = torch.randn(4, 8)
    out, mean, rstd = aten.native_layer_norm(x, [8], None, None, 1e-5)
    finding = judge(aten.native_layer_norm.default, (x, [8], None, None, 1e-5), (out, mean, rstd * 2))
    assert finding.detail.startswith("result 2: ")


def test_the_public_tolerances_ask_no_oracle() -> None:
    """A 0.5 % error passes there and nowhere else."""
    x = torch.linspace(1, 2, 50)
    call, candidate = call_of(aten.exp.default, x), x.exp() * 1.005
    assert compare(call, [[x.exp()]], [[candidate]], tolerance="backendbench").passed
    for tolerance in ("strict", "kernelbench"):
        assert not compare(call, [[x.exp()]], [[candidate]], tolerance=tolerance).passed


def test_numbers_and_none_are_results_too() -> None:
    """An op may return them as they are."""
    call = call_of(aten.equal.default, torch.zeros(1), torch.zeros(1))
    assert compare(call, [[True]], [[True]], tolerance="strict").passed
    assert not compare(call, [[True]], [[False]], tolerance="strict").passed
    assert compare(call, [[None, 2.5]], [[None, 2.5]], tolerance="strict").passed
    assert not compare(call, [[None, 2.5]], [[None, 2.6]], tolerance="strict").passed


def test_the_nearest_number_that_a_type_has_is_right() -> None:
    """Next to 0 float16 has only whole steps of 6e-8; eager's, which rounds on the way, may be the one below."""
    x = torch.linspace(-4e-3, 4e-3, 101, dtype=torch.float16)
    exact = x.double() ** 3
    call = dataclasses.replace(call_of(aten.pow.Tensor_Scalar, x, 3.0), small_results=True)
    below = (exact / 2**-24).trunc().mul(2**-24).half()
    for candidate, passes in ((exact.half(), True), (exact.half() + 2**-24, False), (2 * below, False)):
        assert passes is compare(call, [[below]], [[candidate]], tolerance="strict").passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_sign_of_a_zero_is_asked_where_ieee_defines_it(dtype: torch.dtype) -> None:
    """Of products and scales. A formula as good as ``x - x * x * x / 6`` loses it."""
    x = torch.tensor([-0.0, 0.0, 1.0, -1e-38], dtype=dtype)
    for op in (torch.ops.aten.rad2deg.default, torch.ops.aten.sqrt.default):
        assert judge(op, (x,), op(x)).passed
        assert not judge(op, (x,), op(x) + 0.0).passed
    assert judge(torch.ops.aten.sin.default, (x,), torch.sin(x) + 0.0).passed
