"""Random ops: honest generators pass, everything that only looks random fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.evaluation_calls import call_of, leaves

from opsmith.evaluation.comparisons import compare, rule_for
from opsmith.evaluation.observation import Finding

aten = torch.ops.aten
ZEROS = torch.zeros(8, 8)
FIXED = torch.linspace(0.01, 0.99, 64).reshape(8, 8)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(11)


def _judge(overload: Any, args: tuple[Any, ...], draw: Callable[[], Any] | None = None) -> Finding:
    """Compare draws of ``draw``, or eager's own, with eager's."""
    call = call_of(overload, *args)

    def eager() -> list[Any]:
        return leaves(overload(*(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)))

    first = eager()
    repeats = rule_for(call.schema, call).repeats(first[0].numel())
    reference = [first, *(eager() for _ in range(repeats - 1))]
    candidate = [eager() if draw is None else leaves(draw()) for _ in range(repeats)]
    return compare(call, reference, candidate, tolerance="strict")


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 7), (64, 100)])
def test_eager_passes_against_itself(shape: tuple[int, ...]) -> None:
    """Down to one element."""
    x = torch.zeros(shape)
    assert _judge(aten.normal_.default, (x, 0.0, 1.0)).passed
    assert _judge(aten.uniform_.default, (x.bfloat16(), -1.0, 2.0)).passed
    assert _judge(aten.bernoulli_.float, (x, 0.01)).passed
    assert _judge(aten.geometric_.default, (x, 0.3)).passed
    assert _judge(aten.native_dropout.default, (torch.randn(shape), 0.3, True)).passed
    assert _judge(aten.poisson.default, (torch.full(shape, 3.0),)).passed


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_eager_permutations_pass(n: int) -> None:
    """Whose elements depend on each other."""
    assert _judge(aten.randperm.default, (n,)).passed


def _turning(draws: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    count = iter(range(1_000_000))
    return lambda: draws[next(count) % len(draws)]


@pytest.mark.parametrize(
    ("draw", "complaint"),
    [
        (lambda: FIXED, "draws repeat"),
        (_turning([FIXED, FIXED.flip(0)]), "draws repeat from one execution to the next but one"),
        (lambda: torch.rand(1).expand(8, 8), "elements 1 apart"),
        (lambda: torch.rand(8).expand(8, 8), "elements 8 apart"),
        (lambda: torch.rand(8, 8) / 2, "another location"),
        (lambda: torch.rand(8, 8) / 2 + 0.25, "another scale"),
        (lambda: torch.rand(8, 8) * 1.1, "above 1.0"),
        (lambda: torch.where(FIXED > 0.9, 0.5, torch.rand(8, 8)), "draws repeat"),
    ],
)
def test_what_only_looks_uniform_fails(draw: Callable[[], torch.Tensor], complaint: str) -> None:
    """A constant, a replay, one number for all, a wrong range, a part not written."""
    finding = _judge(aten.uniform_.default, (ZEROS, 0.0, 1.0), draw)
    assert complaint in finding.detail


def test_a_uniform_of_the_same_moments_is_not_normal() -> None:
    """Mean and variance agree; ranks don't."""
    x = torch.zeros(64, 64)
    finding = _judge(aten.normal_.default, (x, 0.0, 1.0), lambda: (torch.rand(64, 64) - 0.5) * 12**0.5)
    assert not finding.passed


def test_dropout_has_to_agree_with_its_mask() -> None:
    """With the scale that p asks for, on the input that it got."""
    x = torch.randn(8, 8)

    def drop(keep: float, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        mask = torch.rand(8, 8) < keep
        return x * mask * scale, mask

    args = (x, 0.5, True)
    assert _judge(aten.native_dropout.default, args, lambda: drop(0.5, 2.0)).passed
    assert not _judge(aten.native_dropout.default, args, lambda: drop(0.5, 1.0)).passed
    assert not _judge(aten.native_dropout.default, args, lambda: drop(0.3, 2.0)).passed
    other_mask = _judge(aten.native_dropout.default, args, lambda: (drop(0.5, 2.0)[0], torch.rand(8, 8) < 0.5))
    assert "does not follow" in other_mask.detail
    zeros = (torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.bool))
    assert not _judge(aten.native_dropout.default, args, lambda: zeros).passed


def test_dropout_may_round_otherwise_than_eager() -> None:
    """In bfloat16 eager rounds the scale first; a kernel that rounds once differs by a bit, always the same way."""
    x = torch.randn(40, 50).bfloat16()

    def drop(error: float) -> tuple[torch.Tensor, torch.Tensor]:
        mask = torch.rand(40, 50) < 0.7
        return (x.float() * mask / 0.7 * (1 + error)).bfloat16(), mask

    args = (x, 0.3, True)
    assert _judge(aten.native_dropout.default, args, lambda: drop(0.0)).passed
    assert "does not follow" in _judge(aten.native_dropout.default, args, lambda: drop(0.04)).detail


def test_a_permutation_is_one_and_every_order_is_likely() -> None:
    """Neither sorted numbers nor rotations nor repeated numbers."""
    assert not _judge(aten.randperm.default, (50,), lambda: torch.arange(50)).passed
    assert not _judge(aten.randperm.default, (50,), lambda: torch.randint(50, (50,))).passed
    rotation = _judge(aten.randperm.default, (50,), lambda: torch.arange(50).roll(int(torch.randint(50, (1,)))))
    assert "independently" in rotation.detail


def test_a_choice_follows_the_weights_and_repeats_only_with_replacement() -> None:
    """A category without weight is never right."""
    weights = torch.tensor([0.6, 0.4, 0.0])
    assert _judge(aten.multinomial.default, (weights, 2)).passed
    drawn = _judge(aten.multinomial.default, (weights, 64, True), lambda: torch.randint(3, (64,)))
    assert "without weight" in drawn.detail
    twice = _judge(aten.multinomial.default, (weights, 2), lambda: torch.randint(2, (2,)))
    assert "drawn twice" in twice.detail


def test_a_choice_of_everything_may_hold_what_has_no_weight() -> None:
    """Asked for as many categories as there are, eager returns the one without weight as well."""
    weights = torch.tensor([[0.5, 0.0, 0.25, 0.25]], dtype=torch.bfloat16)
    assert _judge(aten.multinomial.default, (weights, 4)).passed


def test_a_random_integer_is_an_integer_within_its_bounds() -> None:
    """The upper one is excluded."""
    args = (0, 10, [64])
    assert _judge(aten.randint.low, args).passed
    assert "above 9" in _judge(aten.randint.low, args, lambda: torch.randint(0, 11, (64,))).detail
    assert not _judge(aten.randint.low, args, lambda: torch.randint(0, 9, (64,))).passed


def test_no_global_random_state_is_touched() -> None:
    """A comparison must not shift what is drawn after it."""
    draws = [[torch.rand(64)] for _ in range(64)]
    call = call_of(aten.uniform_.default, torch.zeros(64), 0.0, 1.0)
    state = torch.get_rng_state()
    compare(call, draws, draws[::-1], tolerance="strict")
    assert torch.equal(state, torch.get_rng_state())
