"""Conditions: strictness, direction, negation."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import called, changed, expression, is_device_code, parent

_STRICTNESS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_DIRECTION: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_EQUALITY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_METHODS = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}


def _other(node: ast.AST, table: dict[type[ast.cmpop], type[ast.cmpop]]) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            if type(op) in table:
                yield changed(node, ops=[*node.ops[:index], table[type(op)](), *node.ops[index + 1 :]])


@operator(Family.COMPARISON, "< for <=, or the other way round")
def strictness(node: ast.AST) -> Iterator[ast.AST]:
    yield from _other(node, _STRICTNESS)
    if isinstance(node, ast.Attribute) and node.attr in _METHODS and isinstance(parent(node), ast.Call):
        yield changed(node, attr=_METHODS[node.attr])


@operator(Family.COMPARISON, "< for >, or the other way round")
def direction(node: ast.AST) -> Iterator[ast.AST]:
    yield from _other(node, _DIRECTION)


@operator(Family.COMPARISON, "== for !=, or the other way round")
def equality_negated(node: ast.AST) -> Iterator[ast.AST]:
    yield from _other(node, _EQUALITY)


@operator(Family.COMPARISON, "an equality that also takes in what is larger or smaller")
def equality_widened(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        yield changed(node, ops=[ast.GtE()])
        yield changed(node, ops=[ast.LtE()])


@operator(Family.COMPARISON, "a condition negated")
def condition_negated(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield changed(node, test=ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.Call) and called(node) == "where" and len(node.args) == 3:
        yield changed(node, args=[expression("~(c)", c=node.args[0]), *node.args[1:]])


@operator(Family.COMPARISON, "a condition that always holds, or never does")
def condition_fixed(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.If, ast.IfExp)) and not is_device_code(node):
        yield changed(node, test=ast.Constant(value=True))
        yield changed(node, test=ast.Constant(value=False))


@operator(Family.COMPARISON, "and for or, or the other way round")
def connective(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BoolOp):
        yield changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        yield changed(node, op=ast.BitOr() if isinstance(node.op, ast.BitAnd) else ast.BitAnd())


@operator(Family.COMPARISON, "one of several conditions is missing")
def condition_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BoolOp):
        for index in range(len(node.values)):
            rest = [*node.values[:index], *node.values[index + 1 :]]
            yield rest[0] if len(rest) == 1 else changed(node, values=rest)


@operator(Family.COMPARISON, "a missing not")
def negation_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        yield node.operand
    if called(node) == "logical_not":
        assert isinstance(node, ast.Call)
        if node.args:
            yield expression("a != 0", a=node.args[0])
