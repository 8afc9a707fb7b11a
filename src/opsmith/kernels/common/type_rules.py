"""What eager does with the types of an elementwise op, as makers of host functions.

An op of one tensor is ``maker(function)``: the function of values says what is computed, the maker which types are
served and which the result has. Half types are computed in float32 and rounded once, so some functions have a second
form that is short of float32's last digits and takes half the instructions, which is what bounds half types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .elementwise import FLOATS, Operand, map_elements, same, served_promotion
from .launch import require_served

HALF = (torch.float16, torch.bfloat16)
SINGLE = (*HALF, torch.float32)

Unary = Callable[[torch.Tensor], torch.Tensor]
Binary = Callable[[Operand, Operand], torch.Tensor]


def float_result(dtype: torch.dtype) -> torch.dtype:
    """``dtype``, or the default float type for integers and bools."""
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def require_type(dtype: torch.dtype, *, of: tuple[torch.dtype, ...]) -> None:
    """Decline a type of computation that a function of values does not serve.

    Raises:
        NotImplementedError: ``dtype`` is none ``of`` these.
    """
    if dtype not in of:
        raise NotImplementedError(f"{dtype} is not served")


def refuse_bool(name: str, *dtypes: torch.dtype) -> None:
    """Refuse what eager refuses.

    Raises:
        TypeError: one of the types is bool.
    """
    if torch.bool in dtypes:
        raise TypeError(f"{name} is not defined for bool")


def form_for(dtype: torch.dtype, function: Any, half_function: Any) -> Any:
    """The form of a function for results of ``dtype``."""
    return half_function if half_function is not None and dtype in HALF else function


def floating(function: Any, half_function: Any = None, *, served: tuple[torch.dtype, ...] = FLOATS) -> Unary:
    """An op whose result is floating point: integers and bools are taken as the default float type."""

    def op(self: torch.Tensor) -> torch.Tensor:
        require_served(self)
        result = float_result(self.dtype)
        require_type(result, of=served)
        return map_elements(form_for(result, function, half_function), [self], [result], result)

    return op


def only_floating(function: Any, half_function: Any = None, *, served: tuple[torch.dtype, ...] = FLOATS) -> Unary:
    """An op that eager defines for floating point alone."""

    def op(self: torch.Tensor) -> torch.Tensor:
        require_served(self)
        if not self.dtype.is_floating_point:
            raise TypeError(f"not defined for {self.dtype}")
        require_type(self.dtype, of=served)
        return map_elements(form_for(self.dtype, function, half_function), [self], [self.dtype], self.dtype)

    return op


def rounding(function: Any) -> Unary:
    """An op that leaves integers as they are."""

    def op(self: torch.Tensor) -> torch.Tensor:
        require_served(self)
        refuse_bool("rounding", self.dtype)
        chosen = function if self.dtype.is_floating_point else same
        return map_elements(chosen, [self], [self.dtype], self.dtype)

    return op


def predicate(function: Any, *, of_integers: Any = None) -> Unary:
    """An op that answers yes or no; ``of_integers`` is its form for what has no NaN and no infinity."""

    def op(self: torch.Tensor) -> torch.Tensor:
        require_served(self)
        chosen = function if self.dtype.is_floating_point or of_integers is None else of_integers
        return map_elements(chosen, [self], [self.dtype], torch.bool)

    return op


def promoting(function: Any, *, bools: bool = True, name: str = "this op") -> Binary:
    """An op of two operands in their promoted type."""

    def op(self: Operand, other: Operand) -> torch.Tensor:
        result = served_promotion([self, other])
        if not bools:
            refuse_bool(name, result)
        return map_elements(function, [self, other], [result] * 2, result)

    return op


def promoting_to_float(function: Any, half_function: Any = None, *, served: tuple[torch.dtype, ...] = FLOATS) -> Binary:
    """An op of two operands in their promoted type, or the default float type where that is none."""

    def op(self: Operand, other: Operand) -> torch.Tensor:
        result = float_result(served_promotion([self, other]))
        require_type(result, of=served)
        return map_elements(form_for(result, function, half_function), [self, other], [result] * 2, result)

    return op


def comparison(function: Any) -> Binary:
    """An op of two operands that are compared in their promoted type, a number as the nearest one of that type."""

    def op(self: Operand, other: Operand) -> torch.Tensor:
        common = served_promotion([self, other])
        return map_elements(function, [self, other], [common] * 2, torch.bool, rounds_numbers=True)

    return op
