"""Results far below the absolute tolerance, which would let zeros pass for them: judged by their relative error.

Only where eager shows that the type has them: its error is small throughout the results of that size. What next to a
root of the function the last digits of its arguments decide is found by perturbation.
docs/explanation/numerics.md says more.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from opsmith.evaluation.criteria.results import in_double, position
from opsmith.evaluation.criteria.tolerance import Tolerance
from opsmith.evaluation.oracle.error_bound import Opinion
from opsmith.evaluation.oracle.perturbation import PERTURBATION_SLACK

#: What is granted of a small result, by dtype. It is far more than what powers and logarithms in float32 lose, and
#: four times the relative tolerance of bfloat16. Results of float16 this small are no normal numbers.
GRANTED = {torch.float32: 1e-3, torch.bfloat16: 6.4e-2}
#: What float32 loses of a sum next to 1, and then scales, is not asked for in a half type: ``x * log(1 + exp(x))``.
FLOOR = {torch.float32: 0.0, torch.bfloat16: 2.0**-19}
#: Of more elements some are looked at; a sweep has fewer.
MOST_ELEMENTS = 1 << 18
#: Smaller ones may be flushed to zero on the way.
SMALLEST = 2.0**-100
#: Eager is believed where its farthest result of a size is this near to float64's, and where there are so many.
BELIEVED, ENOUGH = {torch.float32: 1e-4, torch.bfloat16: 1.6e-2}, 8
#: A candidate may be off by so many times eager's farthest.
TIMES_EAGER = 8.0


def is_asked_of(result: object) -> bool:
    """Whether the result is of a type in which small numbers are judged."""
    return isinstance(result, torch.Tensor) and result.dtype in GRANTED


def hidden_error(
    expected: torch.Tensor,
    got: torch.Tensor,
    tolerance: Tolerance,
    ask: Callable[[], Opinion | None],
    moved: Callable[[float], torch.Tensor],
) -> str | None:
    """What is wrong with results that are near eager's only by the absolute tolerance, in words; None if nothing is.

    Args:
        expected: eager's.
        got: the candidate's, near it.
        tolerance: by which it is near.
        ask: gives the oracle's opinion.
        moved: how far the oracle's elements go when all that they are made of moves by so much.
    """
    dtype, shape = expected.dtype, expected.shape
    granted = GRANTED[dtype]
    step = max(1, expected.numel() // MOST_ELEMENTS)
    expected, got = expected.flatten()[::step], got.flatten()[::step]
    size = expected.abs()
    small = ((size >= SMALLEST) & (size < tolerance.atol / granted)).nonzero().squeeze(1)
    expected, got = in_double(expected[small]), in_double(got[small])
    if not bool(((got - expected).abs() > granted * expected.abs()).any()):
        return None
    opinion = ask()
    if opinion is None or opinion.value.shape != shape:
        return None
    truth = in_double(opinion.value).to(expected.device).flatten()[::step][small]
    off = (got - truth).abs() / truth.abs()
    share = (TIMES_EAGER * _farthest((expected - truth).abs() / truth.abs(), truth, BELIEVED[dtype])).clamp(min=granted)
    failed = (off > share) & got.isfinite()
    if not bool(failed.any()):
        return None
    allowed = (
        share * truth.abs() + PERTURBATION_SLACK * moved(torch.finfo(dtype).eps).to(truth).flatten()[::step][small]
    )
    allowed += FLOOR[dtype]
    if opinion.slack is not None:
        allowed += opinion.slack.to(truth).flatten()[::step][small]
    failed &= (got - truth).abs() > allowed
    if not bool(failed.any()):
        return None
    worst = int((failed * off).argmax())
    return (
        f"{int(failed.sum())} small results are off; worst at {position(step * int(small[worst]), shape)}: "
        f"expected {expected[worst].item():.9g}, got {got[worst].item():.9g}, allowed +-{allowed[worst].item():.3g}"
    )


def _farthest(off: torch.Tensor, truth: torch.Tensor, believed: float) -> torch.Tensor:
    """For each result how far eager's farthest of that power of two is off; infinite where it says nothing."""
    exponent = torch.frexp(truth).exponent.long().clamp(-1100, 1100) + 1100
    farthest = torch.zeros(2201, dtype=off.dtype, device=off.device)
    farthest = farthest.scatter_reduce(0, exponent, off.nan_to_num(torch.inf), "amax")
    many = torch.bincount(exponent, minlength=2201) >= ENOUGH
    return torch.where(many & (farthest <= believed), farthest, torch.inf)[exponent]
