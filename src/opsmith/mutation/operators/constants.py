"""Constants: one more, the wrong sign, digits lost."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import above, changed, is_float_text, number, parent


def _written(node: ast.AST) -> int | float | None:
    """The number, if the node is all of it, and is no part of a subscript of a type or a decorator."""
    if isinstance(parent(node), (ast.UnaryOp, ast.JoinedStr, ast.FormattedValue)):
        return None
    value = number(node)
    return None if any(isinstance(each, ast.arguments) for each in above(node)) else value


def _constant(value: float) -> ast.expr:
    node = ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), node) if value < 0 or (value == 0 and math.copysign(1, value) < 0) else node


@operator(Family.CONSTANT, "a whole number is one more")
def integer_more(node: ast.AST) -> Iterator[ast.AST]:
    value = _written(node)
    if isinstance(value, int):
        yield _constant(value + 1)


@operator(Family.CONSTANT, "a whole number is one less")
def integer_less(node: ast.AST) -> Iterator[ast.AST]:
    value = _written(node)
    if isinstance(value, int):
        yield _constant(value - 1)


@operator(Family.CONSTANT, "a number is off by a thousandth")
def float_perturbed(node: ast.AST) -> Iterator[ast.AST]:
    value = _written(node)
    if isinstance(value, float) and value and math.isfinite(value):
        yield _constant(value * 1.001)


@operator(Family.CONSTANT, "a number is written with three digits")
def digits_lost(node: ast.AST) -> Iterator[ast.AST]:
    value = _written(node)
    if isinstance(value, float) and math.isfinite(value) and float(f"{value:.3g}") != value:
        yield _constant(float(f"{value:.3g}"))


@operator(Family.CONSTANT, "a number with the wrong sign")
def number_sign(node: ast.AST) -> Iterator[ast.AST]:
    value = _written(node)
    if value:
        yield _constant(-value)


@operator(Family.CONSTANT, "a large finite number for infinity, or zero, or the other infinity")
def infinity_replaced(node: ast.AST) -> Iterator[ast.AST]:
    text = is_float_text(node)
    if text is None and isinstance(node, ast.Attribute) and node.attr == "inf":
        text = "-inf" if isinstance(parent(node), ast.UnaryOp) else "inf"
        if text == "-inf":
            yield ast.Constant(1e30)
            yield ast.Constant(0.0)
            return
    if text in ("inf", "-inf"):
        assert text is not None
        yield _constant(-1e30 if text == "-inf" else 1e30)
        yield ast.Constant(0.0)
        yield ast.Call(ast.Name("float"), [ast.Constant("inf" if text == "-inf" else "-inf")], [])


@operator(Family.CONSTANT, "True for False, or the other way round")
def flag_flipped(node: ast.AST) -> Iterator[ast.AST]:
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, bool)
        and not any(isinstance(each, ast.arguments) for each in above(node))
    ):
        yield ast.Constant(not node.value)


@operator(Family.CONSTANT, "a default of a parameter changed")
def default_changed(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.arguments):
        return
    for field in ("defaults", "kw_defaults"):
        values = getattr(node, field)
        for index, value in enumerate(values):
            if value is None:
                continue
            other: ast.expr | None = None
            if isinstance(value, ast.Constant) and isinstance(value.value, bool):
                other = ast.Constant(not value.value)
            elif (written := number(value)) is not None:
                other = _constant(written + 1 if isinstance(written, int) else written * 1.5 + 0.5 * (written == 0))
            if other is not None:
                yield changed(node, **{field: [*values[:index], other, *values[index + 1 :]]})
