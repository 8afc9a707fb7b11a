"""Passes over ATen graphs: exact, and each by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.graphs import outcome
from torch import Tensor

from opsmith.compile import choose_passes

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def _cast_back(x: Tensor) -> Tensor:
    return x.double().float() + 1


def _square(x: Tensor) -> Tensor:
    return x**2 + 1


def _negated_twice(x: Tensor) -> Tensor:
    return x.neg().neg() + 1


@pytest.mark.parametrize("function", [_cast_back, _square, _negated_twice])
def test_what_has_a_shorter_exact_form_gets_it(function: Callable[[Tensor], Tensor]) -> None:
    """Bit by bit the same."""
    found = outcome(function, [X], choose_passes("canonicalise"), gradients=False)
    assert 1 == found.fired
    found.assert_equal(rtol=0, atol=0)


def test_a_cast_that_rounds_stays() -> None:
    """Float32 to bfloat16 and back is no identity."""
    found = outcome(lambda x: x.bfloat16().float() + 1, [X], choose_passes("canonicalise"), gradients=False)
    assert 0 == found.fired
    found.assert_equal(rtol=0, atol=0)


def _neutral(x: Tensor) -> Tensor:
    return (x * 1 - 0) / 1 + 2


def _uniform(x: Tensor) -> Tensor:
    return x + (torch.ones(4, 6) * 3 + 1)


@pytest.mark.parametrize(("function", "calls"), [(_neutral, 1), (_uniform, 2)])
def test_neutral_operands_go_and_uniform_tensors_are_computed_once(
    function: Callable[[Tensor], Tensor], calls: int
) -> None:
    """What is left is what depends on the input, and a constant."""
    found = outcome(function, [X], choose_passes("constant_folding,dead_code"), gradients=False)
    assert [] == [one.undone for one in found.reports if one.undone]
    assert calls == len([one for one in found.targets if one.startswith(("aten", "prims"))])
    found.assert_equal(rtol=0, atol=0)


def test_uniform_tensors_are_computed_with_all_arguments() -> None:
    """A scale of the second operand is one of them; only where the result lies is not asked."""

    def function(x: Tensor) -> Tensor:
        full = torch.full((4, 6), 2.5)
        return x + torch.sub(full, full, alpha=0.5) + torch.add(full, 1, alpha=3).to(torch.float64, copy=True)

    found = outcome(function, [X], choose_passes("constant_folding,dead_code"), gradients=False)
    assert found.fired >= 3
    found.assert_equal(rtol=0, atol=0)


def test_adding_zero_stays_because_of_minus_zero() -> None:
    """-0 + 0 is 0."""
    given = torch.tensor([-0.0, 1.0])
    found = outcome(lambda x: x + 0, [given], choose_passes("all"), gradients=False)
    assert 0.0 == torch.copysign(torch.ones(2), found.results[0]).sub(1).abs().sum()


def test_equal_calls_are_made_once_and_random_ones_each_time() -> None:
    """Two draws are two draws, though they look the same."""

    def function(x: Tensor) -> Tensor:
        return x.sin() * x.sin() + torch.rand_like(x) - torch.rand_like(x)

    found = outcome(function, [X], choose_passes("common_subexpressions"), gradients=False)
    names = [one for one in found.targets if one.startswith("aten.")]
    assert (1, 2) == (sum("sin" in one for one in names), sum("rand" in one for one in names))
    assert not torch.equal(found.results[0], X.sin() ** 2)


def test_zero_and_minus_zero_are_different_arguments() -> None:
    """Python says that they are equal."""

    def function(x: Tensor) -> Tensor:
        return torch.full_like(x, 0.0) + 1 / torch.full_like(x, -0.0)

    found = outcome(function, [X], choose_passes("common_subexpressions"), gradients=False)
    found.assert_equal(rtol=0, atol=0)


def _chain(x: Tensor) -> Tensor:
    return x.view(2, 12).view(3, 8) + 1


def _permuted(x: Tensor) -> Tensor:
    return x.view(2, 2, 6).permute(1, 2, 0).permute(2, 0, 1).contiguous()


@pytest.mark.parametrize("function", [_chain, _permuted])
def test_views_of_views_become_one(function: Callable[[Tensor], Tensor]) -> None:
    """With the layout that the chain had."""
    found = outcome(function, [X], choose_passes("view_cleanup,dead_code"), gradients=False)
    assert found.fired
    assert found.expected[0].stride() == found.results[0].stride()
    found.assert_equal(rtol=0, atol=0)


@pytest.mark.slow
def test_views_stay_whose_symbolic_sizes_come_out_otherwise() -> None:
    """Those alone: the pass is not undone for them, and a chain elsewhere becomes one view."""

    def function(x: Tensor) -> Tensor:
        batch, length, width = x.shape
        chain = (x * 2).view(batch * length, width).view(batch, length, width) + 1
        return chain.view(-1, 12).view(batch * length, -1)

    found = outcome(function, [torch.randn(4, 2, 48)], choose_passes("view_cleanup"), gradients=False, dynamic=True)
    assert ([None], True) == ([one.undone for one in found.reports], found.fired > 0)
    found.assert_equal(rtol=0, atol=0)


def test_what_writes_to_an_input_is_never_dead() -> None:
    """Nobody uses the result of add_, and somebody uses the tensor."""

    def function(x: Tensor) -> Tensor:
        y = x.sin()
        x.add_(1)
        return y * y.cos()

    found = outcome(function, [X], choose_passes("all"), gradients=False)
    found.assert_equal(rtol=0, atol=1e-6)


def test_all_passes_together_keep_results_and_gradients() -> None:
    """Of a function that has something for most of them."""

    def function(x: Tensor, weight: Tensor) -> Tensor:
        hidden = (x * 1).view(2, 12).view(4, 6) ** 2
        normed = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
        return torch.softmax(normed.float().double().float(), -1) + x.sin() * x.sin()

    found = outcome(function, [X, torch.ones(6)], choose_passes("all"))
    assert found.fired >= 3
    assert [] == [one.undone for one in found.reports if one.undone]
    found.assert_equal(rtol=1e-5, atol=1e-5)
