"""Masks and bounds: one element too many, one too few."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import called, changed, expression, is_device_code, is_mask, number, without


@operator(Family.BOUNDS, "a mask takes in the element behind the last, or leaves out the last")
def mask_boundary(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and is_device_code(node) and is_mask(node):
        bound = node.comparators[0]
        if isinstance(node.ops[0], ast.Lt):
            yield changed(node, ops=[ast.LtE()])
            yield changed(node, comparators=[expression("bound - 1", bound=bound)])


@operator(Family.BOUNDS, "a load or store without its mask")
def mask_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"load", "store"} and is_device_code(node):
        kept = [each for each in node.keywords if each.arg not in {"mask", "other"}]
        if len(kept) < len(node.keywords):
            yield changed(node, keywords=kept)


@operator(Family.BOUNDS, "one of the conditions of a mask is missing")
def mask_weakened(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd) and is_mask(node):
        yield node.left
        yield node.right


@operator(Family.BOUNDS, "another value for masked elements")
def mask_fill(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) == "load" and is_device_code(node):
        for index, keyword in enumerate(node.keywords):
            if keyword.arg == "other":
                for other in ("0.0", "1.0"):
                    if ast.unparse(keyword.value) not in {other, other[0]}:
                        new = changed(keyword, value=expression(other))
                        yield changed(node, keywords=[*node.keywords[:index], new, *node.keywords[index + 1 :]])


@operator(Family.BOUNDS, "a loop ends one step early")
def range_short(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"range", "static_range"} and node.args:
        at = 0 if len(node.args) == 1 else 1
        new = expression("end - 1", end=node.args[at])
        yield changed(node, args=[*node.args[:at], new, *node.args[at + 1 :]])


@operator(Family.BOUNDS, "a loop starts one step late")
def range_late(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"range", "static_range"} and node.args:
        if len(node.args) == 1:
            yield changed(node, args=[ast.Constant(1), node.args[0]])
        else:
            yield changed(node, args=[expression("start + 1", start=node.args[0]), *node.args[1:]])


@operator(Family.BOUNDS, "a slice ends one element early")
def slice_short(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Slice):
        if node.upper is None:
            yield changed(node, upper=ast.UnaryOp(ast.USub(), ast.Constant(1)))
        else:
            yield changed(node, upper=expression("end - 1", end=node.upper))


@operator(Family.BOUNDS, "a slice starts one element late")
def slice_late(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Slice):
        if node.lower is None:
            yield changed(node, lower=ast.Constant(1))
        else:
            yield changed(node, lower=expression("start + 1", start=node.lower))


@operator(Family.BOUNDS, "narrow() or select() one place off")
def narrow_shifted(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"narrow", "select"} and len(node.args) >= 2:
        start = node.args[-2] if called(node) == "narrow" else node.args[-1]
        at = len(node.args) - (2 if called(node) == "narrow" else 1)
        shifted = "place - 1" if number(start) != 0 else "place + 1"
        yield changed(node, args=[*node.args[:at], expression(shifted, place=start), *node.args[at + 1 :]])


@operator(Family.BOUNDS, "a division that has to round up rounds down")
def ceiling_lost(node: ast.AST) -> Iterator[ast.AST]:
    if called(node) == "cdiv":
        assert isinstance(node, ast.Call)
        yield expression("a // b", a=node.args[0], b=node.args[1])
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.BinOp)
        and isinstance(node.operand.op, ast.FloorDiv)
        and isinstance(node.operand.left, ast.UnaryOp)
    ):
        yield expression("a // b", a=node.operand.left.operand, b=node.operand.right)


@operator(Family.BOUNDS, "the index along another axis of the grid")
def program_axis(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"program_id", "num_programs"} and node.args:
        axis = number(node.args[0])
        if axis is not None:
            yield changed(node, args=[ast.Constant(0 if axis else 1), *without(node.args, 0)])
