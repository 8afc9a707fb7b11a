"""Comparisons, logic, what is special about a number, and limits. See :mod:`.elementwise` for the traffic."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import Operand, map_elements, same
from ..common.launch import require_served
from ..common.type_rules import comparison, predicate, promoting
from .basic import limited, maximum_of, minimum_of

# ---------------------------------------------------------------- functions of values


@triton.jit
def eq_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x = y``."""
    return x == y


@triton.jit
def ne_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x != y``; true for NaN."""
    return x != y


@triton.jit
def lt_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x < y``."""
    return x < y


@triton.jit
def le_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x <= y``."""
    return x <= y


@triton.jit
def gt_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x > y``."""
    return x > y


@triton.jit
def ge_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x >= y``."""
    return x >= y


@triton.jit
def both_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """Whether both are other than zero."""
    return (x != 0) & (y != 0)


@triton.jit
def either_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """Whether one of them is other than zero."""
    return (x != 0) | (y != 0)


@triton.jit
def one_alone_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """Whether exactly one of them is other than zero."""
    return (x != 0) != (y != 0)


@triton.jit
def is_zero(x: tl.tensor) -> tl.tensor:
    """``x = 0``."""
    return x == 0


@triton.jit
def is_nan(x: tl.tensor) -> tl.tensor:
    """Whether x differs from itself, as only NaN does."""
    return x != x  # noqa: PLR0124 - that is the point


@triton.jit
def is_infinite(x: tl.tensor) -> tl.tensor:
    """``|x| = infinity``."""
    return tl.abs(x) == float("inf")


@triton.jit
def is_positive_infinity(x: tl.tensor) -> tl.tensor:
    """``x = infinity``."""
    return x == float("inf")


@triton.jit
def is_negative_infinity(x: tl.tensor) -> tl.tensor:
    """``x = -infinity``."""
    return x == float("-inf")


@triton.jit
def fmax_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The greater value; the other one where one is NaN."""
    return tl.where((x >= y) | (y != y), x, y)  # noqa: PLR0124 - true for NaN


@triton.jit
def fmin_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The smaller value; the other one where one is NaN."""
    return tl.where((x <= y) | (y != y), x, y)  # noqa: PLR0124 - true for NaN


@triton.jit
def number_for_nan_of(x: tl.tensor, nan: tl.tensor, posinf: tl.tensor, neginf: tl.tensor) -> tl.tensor:
    """x, with numbers for NaN and the infinities."""
    finite = tl.where(x == float("inf"), posinf, tl.where(x == float("-inf"), neginf, x))
    return tl.where(x == x, finite, nan)  # noqa: PLR0124 - false for NaN


# ---------------------------------------------------------------- the ops

eq = comparison(eq_of)
ne = comparison(ne_of)
lt = comparison(lt_of)
le = comparison(le_of)
gt = comparison(gt_of)
ge = comparison(ge_of)

logical_not = predicate(is_zero)
isnan = predicate(is_nan)
isinf = predicate(is_infinite, of_integers=is_nan)
isposinf = predicate(is_positive_infinity, of_integers=is_nan)
isneginf = predicate(is_negative_infinity, of_integers=is_nan)

maximum = promoting(maximum_of)
minimum = promoting(minimum_of)
fmax = promoting(fmax_of)
fmin = promoting(fmin_of)


def _logical(function: object, self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Each operand is read in its own type: whether it is zero depends on no other."""
    require_served(self, other, joins_numbers=True)
    return map_elements(function, [self, other], [self.dtype, other.dtype], torch.bool)


def logical_and(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Whether both are other than zero."""
    return _logical(both_of, self, other)


def logical_or(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Whether one of them is other than zero."""
    return _logical(either_of, self, other)


def logical_xor(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Whether exactly one of them is other than zero."""
    return _logical(one_alone_of, self, other)


def clamp_min(self: torch.Tensor, min: Operand) -> torch.Tensor:  # noqa: A002
    """``self``, at least ``min``."""
    return limited(self, min, None)


def clamp_max(self: torch.Tensor, max: Operand) -> torch.Tensor:  # noqa: A002
    """``self``, at most ``max``."""
    return limited(self, None, max)


def nan_to_num(
    self: torch.Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> torch.Tensor:
    """``self`` with numbers for NaN (0 by default) and the infinities (the largest finite numbers)."""
    require_served(self)
    if not self.dtype.is_floating_point:
        return map_elements(same, [self], [self.dtype], self.dtype)
    finite = torch.finfo(self.dtype)
    numbers = [0.0 if nan is None else nan, finite.max if posinf is None else posinf]
    numbers.append(finite.min if neginf is None else neginf)
    return map_elements(number_for_nan_of, [self], [self.dtype], self.dtype, parameters=list(map(float, numbers)))
