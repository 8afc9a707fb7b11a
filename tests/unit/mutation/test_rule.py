"""The judge's comparison is asked about what a survivor does: a hole among the inputs, or a difference it allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opsmith.mutation.equivalence import compare
from opsmith.mutation.rule import Rule

X = torch.tensor([[1.0, -2.0, float("nan"), 0.0], [0.5, -0.0, -1.0, 3.0]])


def relu(x: torch.Tensor) -> torch.Tensor:
    """Makes a zero of either sign positive."""
    return torch.where(x <= 0, torch.zeros_like(x), x)


def keeps_zeros(x: torch.Tensor) -> torch.Tensor:
    """Another sign of a zero, which is nobody's fault."""
    return torch.where(x < 0, torch.zeros_like(x), x)


def loses_nan(x: torch.Tensor) -> torch.Tensor:
    """A fault, beside another sign of a zero."""
    return torch.nan_to_num(keeps_zeros(x), 0.0, float("inf"))


def raises(x: torch.Tensor) -> torch.Tensor:
    """A fault, too."""
    raise ValueError


@pytest.mark.parametrize(
    ("mutant", "refusal"), [(keeps_zeros, ""), (loses_nan, "expected nan"), (raises, "ValueError raised")]
)
def test_the_comparison_refuses_what_the_judge_refuses(mutant: Callable[..., Any], refusal: str) -> None:
    """On the same input."""
    found = Rule("relu.default").refuses(relu, mutant, (X,), {})
    assert found is not None
    assert (refusal in found) if refusal else not found


@pytest.mark.parametrize(
    ("original", "x"), [(loses_nan, X), (raises, X), (relu, X.to(torch.complex64))], ids=["wrong", "raises", "eager"]
)
def test_an_input_that_the_original_fails_on_says_nothing(original: Callable[..., Any], x: torch.Tensor) -> None:
    """Neither does one that eager refuses."""
    assert Rule("relu.default").refuses(original, keeps_zeros, (x,), {}) is None


def test_a_tolerance_that_the_suite_declares_is_the_judges() -> None:
    """A sum that is off by a thousandth is allowed where the suite says so."""

    def rough(x: torch.Tensor) -> torch.Tensor:
        return x.sum() * 1.001

    x = torch.rand(8) + 1
    assert Rule("sum.default").refuses(torch.sum, rough, (x,), {})
    assert Rule("sum.default", tolerance=(1e-2, 1e-2)).refuses(torch.sum, rough, (x,), {}) == ""


def test_random_results_are_compared_as_distributions() -> None:
    """Other numbers of the same distribution differ bit for bit, and are allowed."""
    rule = Rule("bernoulli.p")
    x = torch.zeros(4096)
    right: Callable[..., Any] = torch.ops.aten.bernoulli.p
    assert rule.refuses(right, lambda x, p: 1 - right(x, 1 - p), (x, 0.25), {}) == ""
    assert rule.refuses(right, lambda x, p: right(x, p + 0.2), (x, 0.25), {})


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "allows"), [(keeps_zeros, True), (loses_nan, False)])
def test_a_comparison_goes_on_behind_what_is_allowed(mutant: Callable[..., Any], *, allows: bool) -> None:
    """What is refused counts, wherever it comes; the first difference of both is the sign of a zero."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((torch.tensor([[1.0, -0.0], [0.5, -1.0]]),), {})]
    rule = Rule("relu.default")
    found = compare(relu, mutant, calls, seed=1, limit_s=30, elements=100_000, refuses=rule.refuses)
    assert found.differs
    assert allows == (found.allowed > 0)
    assert ("another result" in found.differs) == allows


def test_inputs_that_eager_refuses_tell_nothing_apart() -> None:
    """There a kernel may do what it likes."""

    def entropy(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -(y * torch.log(p).clamp_min(-100) + (1 - y) * torch.log1p(-p).clamp_min(-100)).mean()

    def outside(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return entropy(p, y) if bool((p <= 1).all()) else torch.zeros(())

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((torch.rand(64), torch.rand(64)), {})]
    rule = Rule("binary_cross_entropy.default")
    found = compare(entropy, outside, calls, seed=1, limit_s=30, elements=100_000, refuses=rule.refuses)
    assert found.differs
    assert found.allowed == 0 < found.unknown
