"""What the compiler took for granted of sizes and numbers, as text that is read and never run.

A condition is an arithmetic comparison of names in Python's syntax: ``self_0 == other_0 and self_1 > 1``. It stands in
a kernel file as it is; here it is only looked at, to see whether a guard would let a call pass.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from opsmith.core.syntax_tree import expression_tree

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "float": float,
    "int": int,
    "max": max,
    "min": min,
    "math.ceil": math.ceil,
    "math.copysign": math.copysign,
    "math.floor": math.floor,
    "math.trunc": math.trunc,
}


class Unreadable(ValueError):
    """A condition uses something else than arithmetic; the text says what."""


class Condition:
    """One condition.

    Args:
        text: in the syntax above.

    Attributes:
        text: as given.
        names: that it mentions.

    Raises:
        Unreadable: the text is no such condition.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = expression_tree(text)
        except SyntaxError as exc:
            raise Unreadable(text) from exc
        self.names = frozenset(_check(self._tree))

    def holds(self, values: Mapping[str, float]) -> bool:
        """Whether it is true of these values; a division by zero makes it false."""
        try:
            return bool(_value(self._tree, values))
        except ZeroDivisionError:
            return False


def _check(node: ast.expr) -> set[str]:
    """The names in an expression, once each of its parts is known to be readable."""
    match node:
        case ast.Name(id=name):
            return {name}
        case ast.Constant(value=int() | float()) | ast.Attribute(value=ast.Name(id="math"), attr="inf"):
            return set()
        case ast.BoolOp(values=parts):
            return set().union(*map(_check, parts))
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            return _check(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _check(left) | _check(right)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
            return _check(left).union(*map(_check, others))
        case ast.Call(func=function, args=arguments, keywords=[]) if ast.unparse(function) in _FUNCTIONS:
            return set().union(*map(_check, arguments))
    raise Unreadable(ast.unparse(node))


def _value(node: ast.expr, values: Mapping[str, float]) -> Any:
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=value):
            return value
        case ast.Attribute():
            return math.inf
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, values)
        case ast.UnaryOp(operand=operand):
            return -_value(operand, values)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_value(left, values), _value(right, values))
        case ast.Compare(left=left, ops=ops, comparators=others):
            operands = [_value(operand, values) for operand in (left, *others)]
            return all(
                _COMPARISONS[type(op)](*pair) for op, pair in zip(ops, itertools.pairwise(operands), strict=True)
            )
        case ast.Call(func=function, args=arguments):
            return _FUNCTIONS[ast.unparse(function)](*[_value(argument, values) for argument in arguments])
    raise AssertionError(ast.unparse(node))  # Unreachable: the constructor has read it.
