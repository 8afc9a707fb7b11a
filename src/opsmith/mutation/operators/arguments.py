"""Arguments: dropped, ignored, in the wrong place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import called, changed, expression, is_none, number, without

#: Changing these changes no result, or always raises.
_HARMLESS = {
    "device",
    "layout",
    "pin_memory",
    "memory_format",
    "mask",
    "other",
    "num_warps",
    "num_stages",
    "copy",
    "dtype",
}


@operator(Family.ARGUMENT, "a keyword is not passed on")
def keyword_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            if keyword.arg is not None and keyword.arg not in _HARMLESS:
                yield changed(node, keywords=without(node.keywords, index))


@operator(Family.ARGUMENT, "a parameter is ignored: its default counts whatever is given")
def parameter_ignored(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.FunctionDef):
        return
    positional = [*node.args.posonlyargs, *node.args.args]
    given = positional[len(positional) - len(node.args.defaults) :]
    pairs = [
        *zip(given, node.args.defaults, strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    used = {each.id for statement in node.body for each in ast.walk(statement) if isinstance(each, ast.Name)}
    for parameter, default in pairs:
        if default is not None and parameter.arg in used:
            reset = ast.Assign([ast.Name(parameter.arg)], default, lineno=node.body[0].lineno)
            yield changed(node, body=[reset, *node.body])


@operator(Family.ARGUMENT, "two arguments of a call change places")
def arguments_swapped(node: ast.AST) -> Iterator[ast.AST]:
    if (
        isinstance(node, ast.Call)
        and len(node.args) >= 2
        and called(node) not in {"where", "isinstance", "range", "getattr"}
    ):
        for at in range(len(node.args) - 1):
            one, other = node.args[at : at + 2]
            if not any(isinstance(each, ast.Starred) for each in (one, other)) and ast.dump(one) != ast.dump(other):
                yield changed(node, args=[*node.args[:at], other, one, *node.args[at + 2 :]])


@operator(Family.ARGUMENT, "always the last dimension, or always the first")
def dimension_fixed(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in {"dim", "d", "axis"}:
        yield ast.UnaryOp(ast.USub(), ast.Constant(1))
        yield ast.Constant(0)


@operator(Family.ARGUMENT, "a negative dimension is not counted from the end")
def wrap_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and any(word in ast.unparse(node.right) for word in ("dim", "ndim", "rank", "shape", "size", "n"))
    ):
        yield node.left


@operator(Family.ARGUMENT, "what holds for None holds for every value, or the fallback for None is another")
def none_mishandled(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and is_none(node.comparators[0]):
        yield ast.Constant(isinstance(node.ops[0], ast.Is))
        if isinstance(node.left, ast.Name):  # Falsy values taken for None.
            falsy = (
                expression("not a", a=node.left)
                if isinstance(node.ops[0], ast.Is)
                else expression("bool(a)", a=node.left)
            )
            yield falsy


@operator(Family.ARGUMENT, "a scale such as alpha, beta, eps or a correction is left out")
def scale_dropped(node: ast.AST) -> Iterator[ast.AST]:
    scales = {"alpha", "beta", "value", "eps", "correction", "scale", "lambd", "margin", "momentum", "weight", "p"}
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Add, ast.Sub, ast.Div)):
        if isinstance(node.right, ast.Name) and node.right.id in scales:
            yield node.left
        elif isinstance(node.left, ast.Name) and node.left.id in scales and isinstance(node.op, (ast.Mult, ast.Add)):
            yield node.right


@operator(Family.ARGUMENT, "an epsilon in the wrong place: outside of the root, or squared")
def epsilon_moved(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"sqrt", "rsqrt"} and node.args:
        inner = node.args[0]
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add) and "eps" in ast.unparse(inner.right):
            text = "r(v) + e" if called(node) == "sqrt" else "1 / (1 / r(v) + e)"
            yield expression(text, r=node.func, v=inner.left, e=inner.right)


@operator(Family.ARGUMENT, "kept dimensions are squeezed away, or squeezed ones kept")
def keepdim_flipped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id == "keepdim":
        yield expression("not a", a=ast.Name("keepdim"))


@operator(Family.ARGUMENT, "an element of a pair (stride, padding, kernel size) is taken for the other")
def pair_confused(node: ast.AST) -> Iterator[ast.AST]:
    words = {
        "stride",
        "padding",
        "dilation",
        "kernel_size",
        "output_size",
        "output_padding",
        "pad",
        "size",
        "shape",
        "dims",
    }
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        root = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        at = number(node.slice)
        if root in words and at in (0, 1, -1, -2):
            assert isinstance(at, int)
            yield changed(node, slice=expression(str({0: 1, 1: 0, -1: -2, -2: -1}[at])))
