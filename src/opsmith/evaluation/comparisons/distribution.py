"""Random ops: no two executions agree, so draws are tested against eager's draws.

Both sides execute K times on the same arguments; every element of the result is a sample of K
from eager and of K from the candidate, each element with a distribution of its own. What an
honest implementation promises, and how each promise is tested:

- **support**: every value is one that the op can produce (bounds, integers, a permutation);
- **consistency**: dropout's output is its input times its mask times the scale. An output that follows from
  another result is held against that one alone: ranks would tell apart two roundings of the same product;
- **distribution**: the ranks of the candidate's draws among the 2K of their element are those of
  an exchangeable sample. Ties share the mean of their scores, so sums of scores have an exact
  permutation mean and variance whatever the distribution (Hajek, Sidak and Sen, Theory of Rank
  Tests, 1999). Four scores of the rank look for differences in location, scale, skew and tails. Where an op computes
  with what it draws, as attention does, draws are tied that rounding may tell apart: a query that looks at one key
  has two results, and eager's may all be larger than the candidate's in the last digit;
- **independent elements**: ranks of neighbouring elements do not go together (Spearman);
- **independent executions**: draws do not repeat from one execution to the next, nor stand still;
- **streams**: nothing comes back at any distance, within an execution or in another one: :mod:`.streams`;
- **seeds**: the last execution, which begins with the random state of the first one, gives the same draws.

Every statistic is compared with ``LIMIT`` standard deviations, a false alarm in 1e10: some ten
tests for each of 500 cases leave an honest run at 100 %. No global random state is touched; ties
and subsets come from a generator seeded by eager's draws, which a candidate cannot know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from opsmith.evaluation.comparisons import exact, streams, value
from opsmith.evaluation.criteria.judged_call import Finding, JudgedCall, Results
from opsmith.evaluation.criteria.results import PASSED, as_tensor, merge, wrong
from opsmith.evaluation.criteria.rules import ATTENTION, ComparisonRule
from opsmith.evaluation.criteria.tolerance import Tolerance, tolerance_for
from opsmith.evaluation.oracle.attention import explained_with_dropout

LIMIT = 6.5
#: Elements whose ranks are computed: more of them would resolve the rounding of half types.
MOST_ELEMENTS = 4096
#: Rank scores: Legendre polynomials of degree 1 to this.
DEGREES = 4


def compare(
    call: JudgedCall, rule: ComparisonRule, reference: Sequence[Results], candidate: Sequence[Results]
) -> Finding:
    """Compare K executions on each side, K as :meth:`ComparisonRule.repeats` asks; the last began as the first did."""
    arguments = call.bound()
    if not _comes_again(call, rule, reference, candidate):
        return wrong("the same seed gives other draws: the second time that the generators are seeded with it")
    reference, candidate = reference[:-1], candidate[:-1]
    findings = []
    for index in range(len(reference[0])):
        if rule.role(index) != "distribution" or (index == 0 and _follows(rule, reference[0])):
            findings.append(PASSED)
            continue
        expected, got = _draws(reference, index), _draws(candidate, index)
        allowed = _roundings(call, rule, arguments, reference[0][index]) if index == 0 else None
        complaint = _check_draws(rule, arguments, index, expected, got, allowed)
        findings.append(PASSED if complaint is None else wrong(complaint))
    finding = merge(findings) if findings else PASSED
    return _check_relation(rule, arguments, candidate) if finding.passed else finding


def _comes_again(
    call: JudgedCall, rule: ComparisonRule, reference: Sequence[Results], candidate: Sequence[Results]
) -> bool:
    """Whether the last execution, under the random state of the first one, gives its draws; where eager's does."""
    for index in range(len(reference[0])):
        ours, theirs = ([as_tensor(side[place][index]) for place in (0, -1)] for side in (reference, candidate))
        if rule.role(index) != "distribution" or not _are_equal(*ours):
            continue
        computed = index == 0 and (rule.stem in _COMPUTED or _follows(rule, reference[0]))
        if not (_are_close(call, *theirs) if computed else _are_equal(*theirs)):
            return False
    return True


def _are_equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is None or other is None or not bool(exact.different(one, other).any())


def _are_close(call: JudgedCall, one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """What is computed with draws may be added up in another order."""
    if one is None or other is None:
        return True
    limits = tolerance_for("strict", one.dtype, call.tolerance)
    return torch.allclose(one.double(), other.double(), rtol=16 * limits.rtol, atol=16 * limits.atol, equal_nan=True)


#: What torch hardly computes with, in a type that it does; of 64 bits the last ones make no difference to ranks.
_WIDER = {torch.uint16: torch.int64, torch.uint32: torch.int64, torch.uint64: torch.float64}


def _draws(executions: Sequence[Results], index: int) -> torch.Tensor:
    """The draws of result ``index``, one execution a row: ``[K, *shape]``."""
    leaves = [as_tensor(results[index]) for results in executions]
    stacked = torch.stack([leaf for leaf in leaves if leaf is not None])
    if stacked.dtype is torch.bool:
        return stacked.to(torch.uint8)
    if stacked.dtype in _WIDER:
        return stacked.to(_WIDER[stacked.dtype])
    return stacked.float() if stacked.element_size() < 4 and stacked.is_floating_point() else stacked


#: Ops that compute with what they draw, so that one draw may come out a rounding apart.
_COMPUTED = ATTENTION | {"dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"}


class _Roundings(NamedTuple):
    """By how much results of one draw may differ: what is granted to values, and what explains more of each element."""

    granted: Tolerance
    explained: torch.Tensor | None

    def within(self, draws: torch.Tensor, elements: torch.Tensor | slice) -> torch.Tensor:
        """The distance up to which draws ``[K, n]`` of these elements are one, by the largest of each element."""
        largest = draws.abs().masked_fill(draws.abs() >= torch.finfo(draws.dtype).max, 0.0).amax(0).double()
        granted = largest * self.granted.rtol + self.granted.atol
        return granted if self.explained is None else granted + self.explained[elements]


def _roundings(call: JudgedCall, rule: ComparisonRule, arguments: dict[str, Any], result: Any) -> _Roundings | None:
    """What roundings explain of a first result; None where it is drawn and not computed."""
    if rule.stem not in _COMPUTED or not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return None
    limits = tolerance_for("strict", result.dtype, call.tolerance)
    explained = explained_with_dropout(rule.stem, arguments)
    if explained is None or explained.shape != result.shape:
        return _Roundings(limits, None)
    return _Roundings(limits, explained.flatten().nan_to_num(0.0, 0.0, 0.0))


def _check_draws(
    rule: ComparisonRule,
    arguments: dict[str, Any],
    index: int,
    expected: torch.Tensor,
    got: torch.Tensor,
    allowed: _Roundings | None,
) -> str | None:
    """The first promise that the draws of one result break, or None."""
    if expected.is_complex():
        expected, got = torch.view_as_real(expected), torch.view_as_real(got)
    if expected[0].numel() == 0:
        return None
    complaint = _support(rule, arguments, expected, got) if index == 0 else None
    expected, got = _with_nan_tied(expected), _with_nan_tied(got)
    complaint = complaint or _repetition(expected, got, dependent=rule.dependent)
    if complaint is not None:
        return complaint
    generator = torch.Generator().manual_seed(hash(tuple(expected.flatten()[:16].tolist())) % (1 << 63))
    shape = expected.shape[1:]
    expected, got = expected.reshape(len(expected), -1), got.reshape(len(got), -1)
    complaint = None if rule.stem in _DRAWN_TOGETHER else _neighbours(shape, expected, got, generator)
    if complaint is None and not rule.dependent and rule.stem not in _DRAWN_TOGETHER:
        complaint = streams.complaint(expected, got, generator)
    if complaint is not None:
        return complaint
    subset: torch.Tensor | slice = slice(None)
    if expected.shape[1] > MOST_ELEMENTS:
        subset = torch.randperm(expected.shape[1], generator=generator)[:MOST_ELEMENTS]
        expected, got = expected[:, subset], got[:, subset]
    distance = None if allowed is None else allowed.within(torch.cat([expected, got]), subset)
    return _ranks(rule, expected, got, distance)


def _with_nan_tied(draws: torch.Tensor) -> torch.Tensor:
    """NaN as a value that equals itself: as it is, a sort would rank one side's after the other's."""
    if not draws.is_floating_point():
        return draws
    return draws.masked_fill(draws.isnan(), torch.finfo(draws.dtype).max)


#: Ops that draw once for a whole channel, so that neighbours do go together.
_DRAWN_TOGETHER = frozenset({"feature_dropout", "feature_alpha_dropout"})


#: Smallest and largest value that an op can produce, and whether only integers are right.
_BOUNDS: dict[str, tuple[Any, Any, bool]] = {
    "bernoulli": (0, 1, True),
    "rand": (0, 1, False),
    "rand_like": (0, 1, False),
    "geometric": (1, math.inf, True),
    "poisson": (0, math.inf, True),
    "exponential": (0, math.inf, False),
    "log_normal": (0, math.inf, False),
    "_standard_gamma": (0, math.inf, False),
    "_sample_dirichlet": (0, 1, False),
}


def _bounds(rule: ComparisonRule, arguments: dict[str, Any]) -> tuple[Any, Any, bool]:
    """The row of ``_BOUNDS`` for this call, where the arguments set the bounds."""
    match rule.stem:
        case "uniform":
            return arguments["from"], arguments["to"], False
        case "randint" | "randint_like":
            return arguments.get("low", 0), _minus_one(arguments["high"]), True
        case "random":
            return arguments.get("from", 0), _minus_one(arguments.get("to")), True
        case "binomial":
            return 0, arguments["count"].detach().cpu(), True
        case "multinomial":
            return 0, arguments["self"].shape[-1] - 1, True
        case "randperm":
            return 0, arguments["n"] - 1, True
    return _BOUNDS.get(rule.stem, (-math.inf, math.inf, False))


def _minus_one(high: Any) -> Any:
    return math.inf if high is None else high.detach().cpu() - 1 if isinstance(high, torch.Tensor) else high - 1


def _support(rule: ComparisonRule, arguments: dict[str, Any], expected: torch.Tensor, got: torch.Tensor) -> str | None:
    """Values outside of what the op can produce, where eager stays inside itself."""
    if got.is_floating_point() and not bool(expected.isnan().any()) and bool(got.isnan().any()):
        return "a draw is NaN where eager never draws one"
    complaint = _impossible(rule, arguments, got)
    # Eager leaves its own promise now and then: multinomial without replacement draws a category
    # without weight when it runs out of others.
    return complaint if complaint is None or _impossible(rule, arguments, expected) is None else None


def _impossible(rule: ComparisonRule, arguments: dict[str, Any], draws: torch.Tensor) -> str | None:
    """What the op should never produce, if it is there."""
    complaint = _out_of_bounds(draws, *_bounds(rule, arguments))
    if complaint is not None:
        return complaint
    if rule.stem == "randperm":
        return _permutations(draws)
    if rule.stem == "multinomial":
        return _choices(arguments, draws)
    if rule.stem == "_sample_dirichlet" and not bool(((draws.sum(-1) - 1).abs() <= 1e-2).all()):
        return "a draw does not add up to 1"
    return None


def _out_of_bounds(draws: torch.Tensor, low: Any, high: Any, integral: bool) -> str | None:  # noqa: FBT001
    if bool((draws < low).any()):
        return f"a draw lies below {low}"
    if bool((draws > high).any()):
        return f"a draw lies above {high}"
    if integral and draws.is_floating_point() and bool((draws != draws.round()).any()):
        return "a draw is no integer"
    return None


def _permutations(got: torch.Tensor) -> str | None:
    if torch.equal(got.sort(-1).values, torch.arange(got.shape[-1]).to(got.dtype).expand(got.shape)):
        return None
    return "a draw is not a permutation"


def _choices(arguments: dict[str, Any], got: torch.Tensor) -> str | None:
    weights = arguments["self"].detach().cpu().float()
    if bool((weights.expand(*got.shape[:-1], weights.shape[-1]).gather(-1, got) <= 0).any()):
        return "a category without weight is drawn"
    ordered = got.sort(-1).values
    if not arguments.get("replacement") and bool((ordered[..., 1:] == ordered[..., :-1]).any()):
        return "a category is drawn twice without replacement"
    return None


def _equal_pairs(draws: torch.Tensor, lag: int) -> torch.Tensor:
    """How many elements are what they were ``lag`` executions before, for each such pair ``[K - lag]``."""
    return (draws[lag:] == draws[:-lag]).reshape(len(draws) - lag, -1).sum(1).double()


_ORDINALS = {1: "next", 2: "next but one"}


def _repetition(expected: torch.Tensor, got: torch.Tensor, *, dependent: bool) -> str | None:
    """Draws that stand still or come back: elements equal some executions apart, of many elements one or two.

    Eager has such pairs too where the distribution is discrete; more of them than eager has is a
    repetition. Pairs of one element share draws and so go together: the variance of their count
    is taken twice. Where elements depend on each other, as the columns of attention do that share
    a dropout, it is larger: as large as it is from one pair of eager's executions to another.
    """
    lags = range(1, len(got) if not dependent and got[0].numel() <= MOST_ELEMENTS else 3)
    for lag in lags:
        eager, own = (_equal_pairs(draws, lag) for draws in (expected, got))
        variance = float(own.sum() + eager.sum())
        if dependent:
            variance = max(variance, 2.0 * len(eager) * float(eager.var()))
        if float(own.sum() - eager.sum()) > LIMIT * math.sqrt(2.0 * variance + 1.0):
            return f"draws repeat from one execution to the {_ORDINALS.get(lag, f'{lag}th after it')}"
    return None


def _neighbours(shape: torch.Size, expected: torch.Tensor, got: torch.Tensor, generator: torch.Generator) -> str | None:
    """Elements next to each other along any dimension, or half of them apart, have to vary as eager's do."""
    count = got.shape[1]
    lags = {math.prod(shape[axis:]) for axis in range(1, len(shape) + 1)} | {1, count // 2, (count + 1) // 2}
    for lag in sorted(lag for lag in lags if 0 < lag < count):
        pairs = torch.randperm(count - lag, generator=generator)[:MOST_ELEMENTS]
        scores = [_spearman(draws[:, pairs], draws[:, pairs + lag], generator) for draws in (expected, got)]
        if abs(scores[1] - scores[0]) > 2 * LIMIT:
            return f"elements {lag} apart do not vary independently"
    return None


def _spearman(one: torch.Tensor, other: torch.Tensor, generator: torch.Generator) -> float:
    """Rank correlation over K executions added up over pairs of elements, in standard deviations."""
    executions, pairs = one.shape
    left, right = (_random_ranks(side, generator) - (executions - 1) / 2 for side in (one, other))
    square = float((torch.arange(executions, dtype=torch.float64) - (executions - 1) / 2).square().sum())
    return float((left * right).sum()) / (square * math.sqrt(pairs / (executions - 1)))


def _random_ranks(draws: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Ranks 0 to K - 1 within each column, ties in random order: float64 ``[K, n]``."""
    shuffle = torch.rand(draws.shape, generator=generator, dtype=torch.float64).argsort(0)
    order = shuffle.gather(0, draws.gather(0, shuffle).sort(stable=True, dim=0).indices)
    ranks = torch.arange(draws.shape[0], dtype=torch.float64)[:, None].expand(draws.shape)
    return torch.empty_like(ranks, memory_format=torch.contiguous_format).scatter_(0, order, ranks)


def _ranks(
    rule: ComparisonRule, expected: torch.Tensor, got: torch.Tensor, distance: torch.Tensor | None
) -> str | None:
    """Rank scores of the candidate's draws, pooled over elements and for each element alone.

    Draws of an element that lie within its ``distance`` are tied.
    """
    executions, elements = got.shape
    total = 2 * executions
    values, order = torch.cat([expected, got]).sort(stable=True, dim=0)
    groups = torch.zeros(order.shape, dtype=torch.long)
    groups[1:] = (values[1:] != values[:-1] if distance is None else _beyond(values, distance)).cumsum(0)
    own = (order >= executions).double()
    ranks = (torch.arange(total, dtype=torch.float64) * 2 + 1) / total - 1
    for degree, name in zip(range(1, DEGREES + 1), ("location", "scale", "skew", "tails"), strict=True):
        scores = _tied(_legendre(degree, ranks), groups)
        scores = scores - scores.mean(0)
        # Drawing K of 2K without replacement: variance of the sum of their scores.
        variance = scores.square().sum(0) * executions * executions / (total * (total - 1))
        each = (scores * own).sum(0)
        deviation = float(variance.sqrt().sum() if rule.dependent else variance.sum().sqrt())
        pooled = float(each.sum()) / max(deviation, 1e-12)
        if abs(pooled) > LIMIT:
            return f"draws have another {name} than eager's: {pooled:+.1f} standard deviations over {elements} elements"
        alone = float((each.abs() / variance.sqrt().clamp(min=1e-12)).max())
        if alone > LIMIT + 0.5:
            return f"draws of one element have another {name} than eager's: {alone:.1f} standard deviations"
    return None


def _beyond(values: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
    """Where a group begins among sorted draws ``[2K, n]``, whose first one begins the first: ``[2K - 1, n]``.

    A group reaches as far as ``distance`` from its smallest draw. It never looks at whose draws they are, so that
    ranks stay exchangeable, and in draws that lie close everywhere groups stay narrow.
    """
    first = values[0].double()
    begins = []
    for draws in values[1:].double():
        begins.append(draws - first > distance)
        first = torch.where(begins[-1], draws, first)
    return torch.stack(begins)


def _legendre(degree: int, x: torch.Tensor) -> torch.Tensor:
    """The Legendre polynomial of ``degree`` by its three-term recurrence."""
    before, now = torch.ones_like(x), x
    for k in range(1, degree):
        before, now = now, ((2 * k + 1) * x * now - k * before) / (k + 1)
    return now


def _tied(scores: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Scores ``[2K]`` of sorted draws ``[2K, n]``, averaged over draws of the same value."""
    spread = scores[:, None].expand(groups.shape)
    sums = torch.zeros(groups.shape, dtype=torch.float64).scatter_add_(0, groups, spread)
    counts = torch.zeros(groups.shape, dtype=torch.float64).scatter_add_(0, groups, torch.ones_like(spread))
    return (sums / counts.clamp(min=1)).gather(0, groups)


def _follows(rule: ComparisonRule, results: Results) -> bool:
    """Whether the first of two results follows from the second: :func:`_check_relation` says how."""
    return rule.stem in _RELATED and len(results) == 2


#: Ops whose second result is what was drawn.
_RELATED = frozenset({"native_dropout", "_fused_dropout", "rrelu_with_noise", "rrelu_with_noise_functional"})


def _check_relation(rule: ComparisonRule, arguments: dict[str, Any], candidate: Sequence[Results]) -> Finding:
    """What the two results of one execution promise about each other."""
    if not _follows(rule, candidate[0]):
        return PASSED
    scale_of = {"native_dropout": _dropout_scale, "_fused_dropout": _keep_scale}
    if rule.stem in scale_of:
        data, scale = next(iter(arguments.values())).detach().cpu(), scale_of[rule.stem](arguments)
        wanted = [_dropped(data, _mask(results), scale) for results in candidate]
    else:
        data = arguments["self"].detach().cpu()
        wanted = [torch.where(data <= 0, data * results[1], data) for results in candidate]
    for results, product in zip(candidate, wanted, strict=True):
        limits = tolerance_for("strict", product.dtype, None)
        finding = value.compare(product.to(data.dtype), results[0], limits, lambda: None)
        if not finding.passed:
            return wrong(f"the first result does not follow from the second: {finding.detail}", finding.figures)
    return PASSED


def _dropout_scale(arguments: dict[str, Any]) -> float:
    return 0.0 if arguments["p"] == 1 else 1.0 / (1.0 - arguments["p"])


def _keep_scale(arguments: dict[str, Any]) -> float:
    return 0.0 if arguments["p"] == 0 else 1.0 / arguments["p"]


def _mask(results: Results) -> torch.Tensor:
    mask = results[1]
    assert isinstance(mask, torch.Tensor)
    return mask


def _dropped(data: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """Input times mask times scale, with eager's NaN where an infinite input is dropped."""
    return data * mask.to(data.dtype) * scale
