"""Precision: accumulators and intermediate results in too few bits, results of another type."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import called, changed, expression, function_of, is_device_code, operands, parent

#: A float32 op computed in float32 is no fault: what a source computes in double goes down to bfloat16.
_LOWER = {"float64": "bfloat16", "float32": "bfloat16", "int64": "int32"}


def _casts_up(node: ast.Call) -> bool:
    if called(node) == "float":
        return isinstance(node.func, ast.Attribute) and not node.args
    return called(node) == "to" and "float32)" in ast.unparse(node)


@operator(Family.PRECISION, "computed in the type of the arguments: a cast up is missing")
def upcast_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and _casts_up(node):
        yield operands(node)[0]


@operator(Family.PRECISION, "an accumulator, an index or a table in a narrower type")
def narrower_type(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in {"torch", "tl"}:
        inside = function_of(node)
        if node.attr in _LOWER and inside is not None and not isinstance(parent(node), ast.Compare):
            yield changed(node, attr=_LOWER[node.attr])
    if isinstance(node, ast.Call) and called(node) in {"double", "long"} and not node.args:
        assert isinstance(node.func, ast.Attribute)
        yield changed(node, func=changed(node.func, attr={"double": "bfloat16", "long": "int"}[called(node)]))


@operator(Family.PRECISION, "the result keeps the type of the computation")
def result_cast_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) == "to" and ".dtype" in ast.unparse(ast.Tuple(node.args)):
        yield operands(node)[0]


@operator(Family.PRECISION, "a step in bfloat16", no_fault_in=("bf16",))
def step_in_bfloat16(node: ast.AST) -> Iterator[ast.AST]:
    names = {
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "tanh",
        "sigmoid",
        "sum",
        "mean",
        "erf",
        "log1p",
        "expm1",
        "sin",
        "cos",
        "pow",
    }
    if isinstance(node, ast.Call) and called(node) in names and operands(node) and not is_device_code(node):
        yield expression("(a).to(torch.bfloat16).to((a).dtype)", a=node)


@operator(Family.PRECISION, "a step in float16, which overflows at 65,504")
def step_in_float16(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.MatMult, ast.Pow)) and not is_device_code(node):
        yield expression("(a).to(torch.float16).to((a).dtype)", a=node)
    if isinstance(node, ast.Call) and called(node) in {"matmul", "mm", "bmm", "einsum", "square"}:
        yield expression("(a).to(torch.float16).to((a).dtype)", a=node)


@operator(Family.PRECISION, "products of bfloat16 in place of float32")
def product_rounded(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and not is_device_code(node):
        yield changed(
            node,
            left=expression("(a).to(torch.bfloat16).to((a).dtype)", a=node.left),
            right=expression("(a).to(torch.bfloat16).to((a).dtype)", a=node.right),
        )


@operator(Family.PRECISION, "truncated to a whole number in place of rounded, or in integers")
def integer_cast(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and is_device_code(node):
        yield changed(node, op=ast.FloorDiv())
