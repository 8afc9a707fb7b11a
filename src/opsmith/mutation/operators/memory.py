"""Memory: strides and offsets ignored, arguments written, results that share memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.core.syntax_tree import syntax_tree
from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import called, changed, expression, function_of, is_device_code, operands

_TENSORS = {
    "x",
    "y",
    "z",
    "a",
    "b",
    "input",
    "self",
    "other",
    "grad",
    "weight",
    "mat",
    "vec",
    "target",
    "src",
    "source",
}


def _tensors(node: ast.AST) -> list[str]:
    """The parameters of a kernel's entry that hold tensors, by their names."""
    if not isinstance(node, ast.FunctionDef) or not node.name.endswith("_kernel_impl"):
        return []
    return [each.arg for each in (*node.args.posonlyargs, *node.args.args) if each.arg in _TENSORS]


def _first(node: ast.FunctionDef, text: str) -> ast.AST:
    """The function with a statement before its others."""
    statement = syntax_tree(text).body[0]
    start = 1 if ast.get_docstring(node) is not None else 0
    return changed(node, body=[*node.body[:start], statement, *node.body[start:]])


@operator(Family.MEMORY, "strides are ignored: the storage is read as if it were contiguous")
def strides_ignored(node: ast.AST) -> Iterator[ast.AST]:
    for name in _tensors(node):
        assert isinstance(node, ast.FunctionDef)
        fits = (
            f"{name}.untyped_storage().nbytes() >= {name}.element_size() * ({name}.storage_offset() + {name}.numel())"
        )
        contiguous = f"torch.as_strided({name}, {name}.shape, torch.empty({name}.shape).stride())"
        yield _first(node, f"if {fits}: {name} = {contiguous}")


@operator(Family.MEMORY, "the storage offset is ignored")
def offset_ignored(node: ast.AST) -> Iterator[ast.AST]:
    for name in _tensors(node):
        assert isinstance(node, ast.FunctionDef)
        yield _first(node, f"{name} = torch.as_strided({name}, {name}.shape, {name}.stride(), 0)")


@operator(Family.MEMORY, "a stride is taken for one")
def stride_of_one(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) == "stride" and node.args:
        yield ast.Constant(1)


@operator(Family.MEMORY, "a copy is left out, so that the result shares memory or an argument is written")
def copy_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"clone", "contiguous", "detach"} and len(operands(node)) == 1:
        yield operands(node)[0]


@operator(Family.MEMORY, "an in-place form writes an argument")
def argument_written(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Return) and node.value is not None and not is_device_code(node):
        function = function_of(node)
        names = [] if function is None else _tensors(function)
        if names:
            yield ast.Return(expression(f"(a, {names[0]}.zero_())[0]", a=node.value))


@operator(Family.MEMORY, "the result is an argument where nothing has to be done to it")
def argument_returned(node: ast.AST) -> Iterator[ast.AST]:
    names = _tensors(node)
    if names:
        assert isinstance(node, ast.FunctionDef)
        yield _first(node, f"if {names[0]}.numel() == 1: return {names[0]}")


@operator(Family.MEMORY, "memory that nothing was written to")
def uninitialised(node: ast.AST) -> Iterator[ast.AST]:
    names = {"zeros": "empty", "zeros_like": "empty_like", "new_zeros": "new_empty"}
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and called(node) in names
        and not is_device_code(node)
    ):
        yield changed(node, func=changed(node.func, attr=names[called(node)]))
