"""Syntax trees with parents, and what operators ask of a node."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence

from opsmith.core.syntax_tree import expression_tree, syntax_tree

#: Attribute of a node that holds the node above it.
_PARENT = "opsmith_parent"
#: Words in the name of a variable that holds a mask.
_MASK_WORDS = ("mask", "valid", "inside", "within", "active", "keep")


def parse(source: str) -> ast.Module:
    """The tree of a source, each node with the one above it.

    Raises:
        SyntaxError: it is no Python.
    """
    tree = syntax_tree(source)
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            setattr(child, _PARENT, node)
    return tree


def parent(node: ast.AST) -> ast.AST | None:
    """The node above, None for the module."""
    return getattr(node, _PARENT, None)


def above(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes above, the nearest first."""
    current = parent(node)
    while current is not None:
        yield current
        current = parent(current)


def function_of(node: ast.AST) -> ast.FunctionDef | None:
    """The innermost function that a node stands in."""
    return next((each for each in above(node) if isinstance(each, ast.FunctionDef)), None)


def is_device_code(node: ast.AST) -> bool:
    """Whether it stands in a function that Triton compiles."""
    functions = [each for each in (node, *above(node)) if isinstance(each, ast.FunctionDef)]
    return any("jit" in ast.unparse(decorator) for each in functions for decorator in each.decorator_list)


def called(node: ast.AST) -> str:
    """The last name of what a call calls (``amax`` of ``torch.amax(x)`` and of ``x.amax()``); empty for no call."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def is_method(call: ast.Call) -> bool:
    """Whether it is called of a value (``x.amax()``) and not of a module (``torch.amax(x)``)."""
    if not isinstance(call.func, ast.Attribute):
        return False
    root = call.func.value
    while isinstance(root, ast.Attribute):
        root = root.value
    return not (isinstance(root, ast.Name) and root.id in {"torch", "tl", "F", "np", "math", "triton", "libdevice"})


def operands(call: ast.Call) -> list[ast.expr]:
    """The positional arguments, the value that a method is called of first."""
    assert isinstance(call.func, (ast.Attribute, ast.Name))
    own = [call.func.value] if isinstance(call.func, ast.Attribute) and is_method(call) else []
    return [*own, *call.args]


def is_mask(node: ast.AST) -> bool:
    """Whether it is part of a mask: of a ``mask=`` or of what is assigned to a variable of such a name."""
    for each in (node, *above(node)):
        if isinstance(each, ast.keyword) and each.arg == "mask":
            return True
        if isinstance(each, ast.Assign):
            names = [target.id for target in each.targets if isinstance(target, ast.Name)]
            return any(word in name.lower() for name in names for word in _MASK_WORDS)
        if isinstance(each, ast.stmt):
            return False
    return False


def changed(node: ast.AST, **fields: object) -> ast.AST:
    """A copy of a node with other fields."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def expression(text: str, **parts: ast.expr) -> ast.expr:
    """An expression written as text, with nodes for its names; a name may occur more than once."""
    tree = expression_tree(text)

    class _Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return parts.get(node.id, node)

    filled = _Fill().visit(tree)
    assert isinstance(filled, ast.expr)
    return filled


def is_none(node: ast.AST) -> bool:
    """Whether it is the constant None."""
    return isinstance(node, ast.Constant) and node.value is None


def number(node: ast.AST) -> int | float | None:
    """The value of a number that is written out, with its sign; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return node.value
    return None


def without(items: Sequence[ast.AST], index: int) -> list[ast.AST]:
    """The items but one."""
    return [*items[:index], *items[index + 1 :]]


def is_float_text(node: ast.AST) -> str | None:
    """The text of ``float("inf")`` and the like."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "float"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ):
        return node.args[0].value
    return None
