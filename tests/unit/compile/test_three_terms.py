"""Short products of float32 with three terms for each, of TF32 numbers."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from opsmith.compile.graph import three_terms
from opsmith.compile.graph.three_terms import in_three_terms, parts_of, takes_three_terms, tf32_overloads, with_parts

aten = torch.ops.aten


def _numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _rounded(x: Tensor) -> Tensor:
    """What tensor cores see of a factor."""
    return torch.bitwise_and(x.view(torch.int32), -0x2000).view(torch.float32)


def test_both_parts_are_tf32_numbers() -> None:
    """With 22 bits of every number, and a low part that is never zero and has the number's sign."""
    x = torch.cat([_numbers(1000) * torch.logspace(-20, 37, 1000), torch.tensor([1.0, -2.0, 3.5])])
    _, high, low = parts_of(x)
    assert torch.equal(high, _rounded(high))
    assert torch.equal(low, _rounded(low))
    assert ((x.double() - high.double() - low.double()) / x).abs().max() <= 2.0**-22
    assert torch.equal(low.sign(), x.sign())
    assert low.all()


def test_zero_and_what_is_not_finite_are_their_own_parts() -> None:
    """An infinity times zero stays what it is not: a number."""
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan])
    for part in parts_of(x):
        torch.testing.assert_close(part, x, equal_nan=True, rtol=0, atol=0)


def _called(op: Any, *args: Any, **kwargs: Any) -> Any:
    assert takes_three_terms(op, args)
    return in_three_terms(op, with_parts(args, op), kwargs)


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_products_are_those_of_their_factors(turned: str) -> None:
    """In every layout, with and without a third operand."""
    a = _numbers(3, 30, 20).mT if "a" in turned else _numbers(3, 20, 30)
    b = _numbers(3, 40, 30).mT if "b" in turned else _numbers(3, 30, 40)
    bias = _numbers(40)
    close = functools.partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
    close(_called(aten.mm.default, a[0], b[0]), a[0] @ b[0])
    close(_called(aten.bmm.default, a, b), a @ b)
    found = _called(aten.addmm.default, bias, a[0], b[0], beta=0.5, alpha=2)
    close(found, torch.addmm(bias, a[0], b[0], beta=0.5, alpha=2))
    close(_called(aten.baddbmm.default, bias, a, b), torch.baddbmm(bias, a, b))


def test_what_would_be_a_long_sum_is_left_alone() -> None:
    """Tensor cores lose something with every addition."""
    a, b = torch.empty(8, 300, device="meta"), torch.empty(300, 8, device="meta")
    assert [False, True] == [takes_three_terms(aten.mm.default, [a[:, :terms], b[:terms]]) for terms in (300, 256)]
    assert not takes_three_terms(aten.relu.default, [a])


def test_accuracy_is_that_of_float32_where_factors_are_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tensor cores that cut factors off; one product of such factors is a thousand times as far from float64."""

    def on_tensor_cores(a: Tensor, b: Tensor) -> Tensor:
        return (_rounded(a).double() @ _rounded(b).double()).float()

    monkeypatch.setattr(three_terms, "tf32_overloads", lambda: {aten.mm.default: on_tensor_cores})
    a, b = _numbers(50, 250), _numbers(250, 60)
    exact = a.double() @ b.double()

    def error(found: Tensor) -> float:
        return ((found.double() - exact).abs().max() / exact.abs().max()).item()

    found = error(_called(aten.mm.default, a, b))
    assert found <= 2 * error(a @ b)
    assert error(on_tensor_cores(a, b)) >= 500 * found


def test_infinities_stay_infinite() -> None:
    """Also where they meet numbers of which nothing is left behind the high part."""
    a, b = _numbers(8, 6), torch.ones(6, 5)
    a[1, 2], a[3, 4], b[0, 3] = math.inf, math.nan, -math.inf
    a[5, 0], b[2, 4] = 0.0, 0.0
    torch.testing.assert_close(_called(aten.mm.default, a, b), a @ b, equal_nan=True, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("set_by", ["nobody", "older names", "newer names"])
def test_tf32_is_allowed_for_one_call(set_by: str) -> None:
    """Whichever of torch's two sets of names somebody used; both go on to agree."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        if set_by == "older names":
            matmul.allow_tf32 = False
        if set_by == "newer names":
            matmul.fp32_precision = "ieee"
        own = matmul.fp32_precision

        with three_terms._tf32_allowed():
            assert matmul.allow_tf32
        assert own == matmul.fp32_precision
        assert matmul.allow_tf32 is False
        with pytest.raises(RuntimeError, match="size|shape"):
            tf32_overloads()[aten.mm.default](_numbers(2, 3), _numbers(2, 3))
        assert own == matmul.fp32_precision
    finally:
        torch.set_float32_matmul_precision("highest")
        matmul.fp32_precision = before
