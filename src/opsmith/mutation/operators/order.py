"""Order: ties, first and last, ascending and descending, duplicates."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import called, changed, expression, is_device_code, operands


@operator(Family.ORDER, "the last of equal elements in place of the first")
def last_tie(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.Call) or is_device_code(node):
        return
    if called(node) in {"argmax", "argmin"} and len(operands(node)) >= 2:
        x, dim = operands(node)[:2]
        turned = changed(
            node,
            func=ast.Attribute(ast.Name("torch"), called(node)),
            args=[expression("torch.flip(a, [b])", a=x, b=dim), dim],
        )
        yield expression("(a).shape[b] - 1 - c", a=x, b=dim, c=turned)  # type: ignore[arg-type]


@operator(Family.ORDER, "a sort that is not stable, descending for ascending, or the other side of an interval")
def order_reversed(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"sort", "argsort", "topk"}:
        for index, keyword in enumerate(node.keywords):
            if keyword.arg in {"stable", "descending", "largest"}:
                new = changed(keyword, value=expression("not (a)", a=keyword.value))
                yield changed(node, keywords=[*node.keywords[:index], new, *node.keywords[index + 1 :]])
        if not any(keyword.arg in {"descending", "largest"} for keyword in node.keywords):
            word = "largest" if called(node) == "topk" else "descending"
            flag = ast.keyword(word, ast.Constant(called(node) != "topk"))
            yield changed(node, keywords=[*node.keywords, flag])


@operator(Family.ORDER, "duplicate indices overwrite each other in place of adding up")
def duplicates_lost(node: ast.AST) -> Iterator[ast.AST]:
    names = {
        "index_add": "index_copy",
        "index_add_": "index_copy_",
        "scatter_add": "scatter",
        "scatter_add_": "scatter_",
    }
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in names:
        yield changed(node, func=changed(node.func, attr=names[called(node)]))


@operator(Family.ORDER, "a scan that leaves out its own element")
def scan_exclusive(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"cumsum", "cumprod"} and not is_device_code(node):
        inverse = "-" if called(node) == "cumsum" else "/"
        yield expression(f"c {inverse} a", c=node, a=operands(node)[0])


@operator(Family.ORDER, "the element behind the right one in sorted order")
def rank_shifted(node: ast.AST) -> Iterator[ast.AST]:
    if (
        isinstance(node, ast.Call)
        and called(node) in {"gather", "take_along_dim", "index_select", "take"}
        and not is_device_code(node)
    ):
        index = node.args[-1]
        yield changed(node, args=[*node.args[:-1], expression("(a - 1).clamp_min(0)", a=index)])
