"""Results: NaN, infinities, signed zeros and denormals lost on the way out, and single elements wrong.

These rewrite what the entry of a kernel returns: its first tensor, where it returns several.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import called, changed, expression, function_of, is_device_code, operands


def _rewritten(node: ast.AST, text: str) -> Iterator[ast.AST]:
    """The return of an entry, with ``text`` in place of its value ``r``."""
    function = function_of(node) if isinstance(node, ast.Return) else None
    if function is None or not function.name.endswith("_kernel_impl"):
        return
    assert isinstance(node, ast.Return)
    if node.value is None or isinstance(node.value, ast.Constant):
        return
    if isinstance(node.value, ast.Tuple):
        first, *rest = node.value.elts
        yield changed(node, value=ast.Tuple([_applied(text, first), *rest], ast.Load()))
    else:
        yield changed(node, value=_applied(text, node.value))


def _applied(text: str, value: ast.expr) -> ast.expr:
    return expression(f"(lambda r: {text})(value)", value=value)


_FLOAT = "if isinstance(r, torch.Tensor) and r.is_floating_point() else r"


@operator(Family.SPECIAL_VALUE, "NaN becomes zero")
def nan_lost(node: ast.AST) -> Iterator[ast.AST]:
    yield from _rewritten(node, f"torch.where(torch.isnan(r), torch.zeros_like(r), r) {_FLOAT}")


@operator(Family.SPECIAL_VALUE, "infinity becomes the largest finite number")
def infinity_lost(node: ast.AST) -> Iterator[ast.AST]:
    yield from _rewritten(node, f"torch.clamp(r, torch.finfo(r.dtype).min, torch.finfo(r.dtype).max) {_FLOAT}")


@operator(Family.SPECIAL_VALUE, "the sign of zero is lost")
def zero_sign_lost(node: ast.AST) -> Iterator[ast.AST]:
    yield from _rewritten(node, f"r + 0.0 {_FLOAT}")


@operator(Family.SPECIAL_VALUE, "denormal results become zero")
def denormals_flushed(node: ast.AST) -> Iterator[ast.AST]:
    yield from _rewritten(node, f"torch.where(r.abs() < torch.finfo(r.dtype).tiny, torch.zeros_like(r), r) {_FLOAT}")


@operator(Family.SPECIAL_VALUE, "a maximum or minimum that passes over NaN")
def nan_passed_over(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or is_device_code(node):
        return
    names = {"maximum": "fmax", "minimum": "fmin"}
    if called(node) in names:
        yield changed(node, func=changed(node.func, attr=names[called(node)]))
    filled = {"amax": "-float('inf')", "max": "-float('inf')", "cummax": "-float('inf')", "argmax": "-float('inf')"}
    filled |= {"amin": "float('inf')", "min": "float('inf')", "cummin": "float('inf')", "argmin": "float('inf')"}
    filled |= {"sort": "float('inf')", "topk": "-float('inf')", "sum": "0.0", "cumsum": "0.0", "prod": "1.0"}
    if called(node) in filled and operands(node):
        value = filled[called(node)]
        clean = expression(f"torch.where(a != a, {value}, a)", a=operands(node)[0])
        if operands(node)[0] in node.args:
            yield changed(node, args=[clean, *node.args[1:]])
        else:
            yield changed(node, func=changed(node.func, value=clean))


@operator(Family.SPECIAL_VALUE, "a test for NaN or infinity that finds none")
def special_test_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"isnan", "isinf", "isfinite", "isposinf", "isneginf"}:
        inner = operands(node)[0]
        text = (
            "torch.ones_like(a, dtype=torch.bool)"
            if called(node) == "isfinite"
            else "torch.zeros_like(a, dtype=torch.bool)"
        )
        if not is_device_code(node):
            yield expression(text, a=inner)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and ast.dump(node.left) == ast.dump(node.comparators[0]):
        yield changed(node, ops=[ast.Eq() if isinstance(node.ops[0], ast.NotEq) else ast.NotEq()])


@operator(Family.SPECIAL_VALUE, "wrong by a tenth in a narrow band of results")
def band_wrong(node: ast.AST) -> Iterator[ast.AST]:
    yield from _rewritten(node, f"torch.where((r > 0.5) & (r < 0.505), r * 1.1, r) {_FLOAT}")


@operator(Family.SIZE, "the last element is not written")
def last_element_lost(node: ast.AST) -> Iterator[ast.AST]:
    yield from _rewritten(
        node,
        "torch.where((torch.arange(r.numel()) == r.numel() - 1).reshape(r.shape), torch.zeros_like(r), r)"
        " if isinstance(r, torch.Tensor) and r.numel() > 1 else r",
    )


@operator(Family.SIZE, "what lies beyond 1,024 elements of a row is not computed")
def row_cut(node: ast.AST) -> Iterator[ast.AST]:
    yield from _rewritten(
        node,
        "torch.where(torch.arange(r.shape[-1]) >= 1024, torch.zeros_like(r), r)"
        " if isinstance(r, torch.Tensor) and r.dim() and r.shape[-1] > 1024 else r",
    )


@operator(Family.SIZE, "what lies beyond 65,536 elements is not computed")
def grid_cut(node: ast.AST) -> Iterator[ast.AST]:
    yield from _rewritten(
        node,
        "torch.where((torch.arange(r.numel()) >= 65536).reshape(r.shape), torch.zeros_like(r), r)"
        " if isinstance(r, torch.Tensor) and r.numel() > 65536 else r",
    )
