"""Arithmetic: other operators, other operands."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import called, changed, expression, number

_COMMUTE = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
_SWAPS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
_INTEGER: dict[type[ast.operator], type[ast.operator]] = {
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitXor: ast.BitOr,
}


def _text(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in ast.walk(node))


def _sequence(node: ast.AST) -> bool:
    return any(isinstance(each, (ast.List, ast.Tuple, ast.ListComp)) for each in ast.iter_child_nodes(node))


@operator(Family.ARITHMETIC, "+ for -, * for /, or the other way round")
def operator_swapped(node: ast.AST) -> Iterator[ast.AST]:
    if (
        isinstance(node, (ast.BinOp, ast.AugAssign))
        and type(node.op) in _SWAPS
        and not _text(node)
        and not _sequence(node)
    ):
        yield changed(node, op=_SWAPS[type(node.op)]())


@operator(Family.ARITHMETIC, "// for %, << for >>, | for ^")
def integer_operator_swapped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _INTEGER and not _text(node):
        yield changed(node, op=_INTEGER[type(node.op)]())


@operator(Family.ARITHMETIC, "the operands of -, / or the like change places")
def operands_swapped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and not isinstance(node.op, _COMMUTE) and not _text(node):
        yield changed(node, left=node.right, right=node.left)


@operator(Family.ARITHMETIC, "one operand is left out")
def operand_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and type(node.op) in _SWAPS and not _text(node) and not _sequence(node):
        yield node.left
        if number(node.left) is None:
            yield node.right


@operator(Family.ARITHMETIC, "a missing minus")
def sign_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and number(node.operand) is None:
        yield node.operand


@operator(Family.ARITHMETIC, "another exponent")
def exponent_changed(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        yield node.left
        yield changed(node, right=expression("e + 1", e=node.right))


@operator(Family.ARITHMETIC, "a * a + b in another grouping: factors of a sum")
def grouping(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        if isinstance(node.right, ast.BinOp) and isinstance(node.right.op, (ast.Add, ast.Sub)):
            yield changed(node.right, left=ast.BinOp(node.left, ast.Mult(), node.right.left))
        elif isinstance(node.left, ast.BinOp) and isinstance(node.left.op, (ast.Add, ast.Sub)):
            yield changed(node.left, right=ast.BinOp(node.left.right, ast.Mult(), node.right))


@operator(Family.ARITHMETIC, "the maximum is not subtracted before the exponential")
def stabilisation_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and any(word in ast.unparse(node.right) for word in ("max", "top", "largest", "peak"))
    ):
        yield node.left


@operator(Family.ARITHMETIC, "torch.sub, mul or the like for another")
def arithmetic_call_swapped(node: ast.AST) -> Iterator[ast.AST]:
    swaps = {"add": "sub", "sub": "add", "mul": "div", "div": "mul", "addcmul": "addcdiv", "rsub": "sub"}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in swaps:
        yield changed(node, func=changed(node.func, attr=swaps[called(node)]))
