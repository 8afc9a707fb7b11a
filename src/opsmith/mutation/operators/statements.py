"""Statements: left out, or a special case that is not handled."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import changed, number


@operator(Family.STATEMENT, "an update of a variable is left out")
def update_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.AugAssign):
        yield ast.Pass()
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        if any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node.value)):
            yield ast.Pass()


@operator(Family.STATEMENT, "a write into a tensor is left out")
def write_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield ast.Pass()


@operator(Family.STATEMENT, "a special case is not handled")
def case_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and not node.orelse and not any(isinstance(each, ast.Raise) for each in node.body):
        yield ast.Pass()


@operator(Family.STATEMENT, "a loop runs only once")
def loop_once(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.For) and not any(isinstance(each, ast.Return) for each in ast.walk(node)):
        yield changed(node, body=[*node.body, ast.Break()])


@operator(Family.STATEMENT, "the start value of an accumulator is another")
def start_changed(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        value = number(node.value)
        if value is not None:
            yield changed(node, value=ast.Constant(1 if value == 0 else 0))
