"""Random ops: honest generators pass, everything that only looks random fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.evaluation_calls import call_of, leaves

from opsmith.calls.seeding import seed_of
from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.criteria.judged_call import Finding
from opsmith.evaluation.criteria.rules import rule_for

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
    sides = []
    for drawn in (eager, eager if draw is None else lambda: leaves(draw())):
        seed = int(torch.randint(1 << 40, ()))
        executions = []
        for number in range(repeats):
            torch.manual_seed(seed_of(seed, number, repeats))
            executions.append(drawn())
        sides.append(executions)
    return compare(call, *sides, tolerance="strict")


@pytest.mark.slow
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
@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _attention_draws(
    heads: Heads, count: int, *, dtype: torch.dtype, drops: float = 0.5, scale: float = 2.0
) -> list[list[Any]]:
    """What a causal memory-efficient attention that computes in ``dtype`` returns in each of ``count`` executions."""
    q, k, v = (x.to(dtype) for x in heads)
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    weights = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf).softmax(-1)
    left = [weights * (torch.rand(weights.shape) >= drops) * scale for _ in range(count)]
    return [[(each @ v).to(heads[0].dtype), *(torch.empty(0) for _ in range(3))] for each in left]


def _judge_attention(heads: Heads, candidate: Heads, **how: Any) -> Finding:
    """Hold draws of attention of half the weights, twice as large, against others."""
    call = call_of(aten._scaled_dot_product_efficient_attention.default, *heads, None, False, 0.5, True)
    repeats = rule_for(call.schema, call).repeats(heads[0].numel())
    reference = _attention_draws(heads, repeats, dtype=torch.float32)
    got = _attention_draws(candidate, repeats, **{"dtype": torch.float64, **how})
    return compare(call, reference, got, tolerance="strict")


def _heads() -> Heads:
    """As OpInfo has them: scores in the tens, so that most queries look at one key alone."""
    return tuple(torch.empty(4, 4, rows, 8).uniform_(-9, 9) for rows in (3, 6, 6))  # type: ignore[return-value]


def test_the_few_results_of_a_query_that_looks_at_one_key_may_round_otherwise_than_eagers() -> None:
    """Nothing and twice its value: all of eager's may be larger in the last digit, and none is drawn more often."""
    heads = _heads()
    for _ in range(3):
        assert _judge_attention(heads, heads).passed


def test_attention_that_drops_or_scales_otherwise_fails() -> None:
    """By a tenth more, or by one in a thousand."""
    heads = _heads()
    assert not _judge_attention(heads, heads, drops=0.6, scale=2.5).passed
    assert not _judge_attention(heads, heads, scale=2.002).passed
    assert not _judge_attention(heads, heads, scale=1.0).passed


def test_attention_of_rounded_operands_fails_under_a_dropout() -> None:
    """As a kernel computes that leaves float32 to TF32, with 10 bits behind the point."""
    heads = _heads()
    q, k, v = (torch.round(torch.frexp(x)[0] * 2048) / 2048 * 2.0 ** torch.frexp(x)[1] for x in heads)
    assert not _judge_attention(heads, (q, k, v)).passed


def _wide_heads() -> Heads:
    """The columns of a query, 64, share what is dropped of its weights: few are seen, and combinations come back."""
    return tuple(torch.randn(2, 2, rows, 64) for rows in (12, 20, 20))  # type: ignore[return-value]


@pytest.mark.slow
def test_columns_that_share_a_dropout_may_come_back_together() -> None:
    """More often in the candidate's executions than in eager's, or less, by chance."""
    for _ in range(4):
        heads = _wide_heads()
        assert _judge_attention(heads, heads).passed


def test_a_dropout_that_comes_back_fails_where_columns_share_it() -> None:
    """In the next execution, and in the next but one."""
    heads = _wide_heads()
    call = call_of(aten._scaled_dot_product_efficient_attention.default, *heads, None, False, 0.5, True)
    repeats = rule_for(call.schema, call).repeats(heads[0].numel())
    reference, other = (_attention_draws(heads, repeats, dtype=torch.float32) for _ in range(2))
    for order in ([n // 2 for n in range(repeats)], [n % 2 for n in range(repeats)]):
        assert not compare(call, reference, [other[n] for n in order], tolerance="strict").passed


def test_an_alpha_dropout_may_round_otherwise_than_eager() -> None:
    """It has two results for each element, and no mask that tells them apart."""
    x = torch.randn(5, 7)
    alpha = -1.7580993408473766
    a = math.sqrt(1 / (0.7 + 0.3 * 0.7 * alpha**2))

    def draw() -> torch.Tensor:
        wide = torch.where(torch.rand(x.shape) >= 0.3, x.double(), alpha)
        return (wide * a - 0.3 * alpha * a).float()

    assert _judge(aten.alpha_dropout.default, (x, 0.3, True), draw).passed
