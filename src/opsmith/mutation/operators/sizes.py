"""Sizes: one too small, or of another dimension."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import called, changed, expression, number, parent


def _is_size(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return (
            isinstance(node.value, ast.Attribute)
            and node.value.attr == "shape"
            and not isinstance(node.slice, ast.Slice)
        )
    return isinstance(node, ast.Call) and (called(node) == "numel" or (called(node) == "size" and bool(node.args)))


@operator(Family.SIZE, "a size is one less")
def size_less(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.expr) and _is_size(node) and not isinstance(parent(node), ast.Compare):
        yield expression("a - 1", a=node)


@operator(Family.SIZE, "a size is one more")
def size_more(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.expr) and _is_size(node) and not isinstance(parent(node), ast.Compare):
        yield expression("a + 1", a=node)


@operator(Family.SIZE, "the size of another dimension")
def size_of_another(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Subscript) and _is_size(node):
        at = number(node.slice)
        if at is None:
            yield changed(node, slice=ast.Constant(0))
            yield changed(node, slice=expression("-1"))
        else:
            yield changed(node, slice=expression("-1" if at == 0 else "0"))
    if isinstance(node, ast.Call) and called(node) == "size" and node.args and number(node.args[0]) is not None:
        yield changed(node, args=[expression("-1" if number(node.args[0]) == 0 else "0")])


@operator(Family.SIZE, "all elements counted in place of those of one dimension")
def size_of_all(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Subscript) and _is_size(node):
        assert isinstance(node.value, ast.Attribute)
        yield expression("(a).numel()", a=node.value.value)
