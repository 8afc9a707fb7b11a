"""Errors of half types that lean to one side: a scale that is off by part of a step, within every tolerance.

What is rounded to the type once differs from float64's rounded result in few elements. What is rounded on the way
differs in many, to either side. What is off in nearly all elements that differ to the same side, away from zero or
towards it, has another scale or formula: a constant of too few digits. docs/explanation/numerics.md has the
experiments behind the constants.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

#: The bits of a half type's fraction, which are those behind its exponent's.
_FRACTION = {torch.bfloat16: 7, torch.float16: 10}
#: Results of these magnitudes are looked at; next to 0 all errors of a function are alike.
LOW, HIGH = 2.0**-14, 2.0**8
#: Fewer elements may be made of few numbers, as where one of two tensors is broadcast.
FEWEST_ELEMENTS = 1 << 13
#: More would come to each number several times, and rarer errors with them.
MOST_ELEMENTS = 1 << 16
#: Exponents, with their sign, of which a quarter of the numbers are among the results. Fewer results may come from few
#: roundings on the way, whose errors are no chance: those of one gate, or of values around one number.
ENOUGH_EXPONENTS, COVERED = 8, 0.25
#: Numbers that differ, and what share of them may do so to the other side.
FEWEST, OTHER_SIDE = 24, 0.1
#: Roundings on the way lean where a step hardly moves, as a sigmoid near 0: in a few exponents, and to both sides in
#: others. Of a wrong scale all exponents lean in which so many numbers are off, and there are as many of these.
CLEAR, FEWEST_EXPONENTS = 4, 6
#: The lean, in steps of the type: gelu with 0.707 for the root of a half has 0.04, a formula in float32 up to 0.02.
LEAN = 0.03
#: What is cut off instead of rounded leans towards 0 by about half a step, in nearly all exponents alike.
CUT_OFF = (0.3, 0.7)
_CUT_OFF_ANYWHERE, _CUT_OFF_SHARE = (0.25, 1.0), 0.8


def is_asked_of(result: torch.Tensor) -> bool:
    """Whether the result is of a half type and has enough elements."""
    return result.dtype in _FRACTION and result.numel() >= FEWEST_ELEMENTS


def lean_of(expected: torch.Tensor, got: torch.Tensor, truths: Iterable[torch.Tensor | None]) -> str | None:
    """How a result leans, in words; None if it does not.

    Args:
        expected: eager's.
        got: the candidate's, near it.
        truths: results in float64, asked where eager's does not explain the candidate's, one after another until one
            does; a None explains everything.
    """
    expected, got = _some(expected), _some(got)
    if int(torch.count_nonzero(expected != got)) < FEWEST:
        return None
    leaning = _leaning(expected, got)
    for truth in truths:
        if leaning is None or truth is None:
            return None
        leaning = _leaning(_some(truth).to(expected), got)
    if leaning is None:
        return None
    side = "nearer to" if leaning.towards_zero else "farther from"
    return (
        f"errors lean to one side: of {leaning.numbers} different numbers {leaning.off} are {side} 0 than float64's, "
        f"{leaning.other_side} are off to the other side; roundings go to either"
    )


class _Lean(NamedTuple):
    numbers: int
    off: int
    other_side: int
    towards_zero: bool


def _some(result: torch.Tensor) -> torch.Tensor:
    flat = result.flatten()
    return flat[:: max(1, len(flat) // MOST_ELEMENTS)]


def _leaning(right: torch.Tensor, got: torch.Tensor) -> _Lean | None:
    """How far ``got`` leans beside the right numbers; None if it does not, or no more than what is cut off does.

    Numbers are counted, not elements: of one number's elements one off to a side is as many as all.
    """
    fraction, steps, other_steps = _FRACTION[right.dtype], _in_steps(right), _in_steps(got)
    size = right.abs().float()
    usual = (size >= LOW) & (size < HIGH) & got.isfinite() & (steps * other_steps > 0)
    steps, away = steps[usual], (other_steps.abs() - steps.abs())[usual]
    present, farther, nearer = (_by_exponent(steps[chosen], fraction) for chosen in (slice(None), away > 0, away < 0))
    covered = present >= COVERED * (1 << fraction)
    if int(covered.sum()) < ENOUGH_EXPONENTS:
        return None
    present, farther, nearer = present[covered], farther[covered], nearer[covered]
    differs = farther + nearer > 0
    most, least = torch.maximum(farther, nearer), torch.minimum(farther, nearer)
    off, other = int(most.sum()), int(least.sum())
    numbers = int(present[differs].sum())
    if off < FEWEST or other > OTHER_SIDE * off or off - other < LEAN * numbers:
        return None
    clear = most + least >= CLEAR
    leans = clear & (least <= OTHER_SIDE * most)
    if int(leans.sum()) < FEWEST_EXPONENTS or int((clear & ~leans).sum()) > OTHER_SIDE * int(leans.sum()):
        return None
    if int(farther.sum()) <= OTHER_SIDE * int(nearer.sum()) and _is_cut_off(steps, away, fraction, covered):
        return None
    return _Lean(numbers, off, other, bool(nearer.sum() > farther.sum()))


def _in_steps(numbers: torch.Tensor) -> torch.Tensor:
    """The place of each number among those of its type, counted from zero; of either zero it is 0."""
    bits = numbers.view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


def _by_exponent(steps: torch.Tensor, fraction: int) -> torch.Tensor:
    """How many different numbers there are of each exponent and sign."""
    seen = torch.zeros(1 << 16, dtype=torch.bool, device=steps.device)
    seen[(steps + (1 << 15)).long()] = True
    return seen.view(-1, 1 << fraction).sum(1)


def _is_cut_off(steps: torch.Tensor, away: torch.Tensor, fraction: int, covered: torch.Tensor) -> bool:
    """Whether elements are too near to 0 by about half a step, whatever their exponent."""
    exponents, count = (steps + (1 << 15)).long() >> fraction, len(covered)
    all_, nearer = (torch.bincount(exponents[chosen], minlength=count)[covered] for chosen in (steps != 0, away < 0))
    rates = (nearer / all_)[nearer > 0]
    if not len(rates) or not CUT_OFF[0] <= float(rates.mean()) <= CUT_OFF[1]:
        return False
    alike = (rates >= _CUT_OFF_ANYWHERE[0]) & (rates <= _CUT_OFF_ANYWHERE[1])
    return float(alike.float().mean()) >= _CUT_OFF_SHARE
