"""Functions: a neighbour in place of the right one, or none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.mutation.operators.operator import Family, operator
from opsmith.mutation.syntax import called, changed, expression, is_device_code, is_method, number, operands


def _renamed(node: ast.AST, names: dict[str, str]) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in names:
        new = names[called(node)]
        if isinstance(node.func, ast.Attribute):
            yield changed(node, func=changed(node.func, attr=new))
        else:
            yield changed(node, func=ast.Name(new))


def _both(**names: str) -> dict[str, str]:
    return names | {new: old for old, new in names.items()}


@operator(Family.FUNCTION, "min for max, or the other way round")
def extremum_swapped(node: ast.AST) -> Iterator[ast.AST]:
    yield from _renamed(
        node,
        _both(
            max="min",
            amax="amin",
            maximum="minimum",
            argmax="argmin",
            cummax="cummin",
            fmax="fmin",
            clamp_min="clamp_max",
            nanmedian="nanmean",
        ),
    )


@operator(Family.FUNCTION, "a neighbouring function")
def neighbour(node: ast.AST) -> Iterator[ast.AST]:
    yield from _renamed(
        node,
        _both(sin="cos", sinh="cosh", asin="acos", log2="log10", zeros_like="ones_like", zeros="ones")
        | {"exp": "exp2", "exp2": "exp", "log": "log2", "log10": "log", "tanh": "sin", "erf": "tanh", "tan": "tanh"}
        | {"expm1": "exp", "log1p": "log", "sqrt": "rsqrt", "rsqrt": "sqrt", "atan2": "hypot", "erfc": "erf"},
    )


@operator(Family.FUNCTION, "mean for sum, prod for sum, any for all, or the other way round")
def reduction_swapped(node: ast.AST) -> Iterator[ast.AST]:
    yield from _renamed(node, _both(sum="mean", all="any") | {"prod": "sum", "cumsum": "cumprod", "cumprod": "cumsum"})


@operator(Family.FUNCTION, "expm1, log1p or hypot written out, which cancels or overflows")
def unstable_form(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.Call) or is_device_code(node):
        return
    forms = {
        "expm1": "torch.exp(a) - 1",
        "log1p": "torch.log(1 + a)",
        "logaddexp": "torch.log(torch.exp(a) + torch.exp(b))",
        "sigmoid": "torch.exp(a) / (1 + torch.exp(a))",
        "tanh": "1 - 2 / (torch.exp(2 * a) + 1)",
        "hypot": "torch.sqrt(a * a + b * b)",
    }
    form = forms.get(called(node))
    given = operands(node) if form else []
    if form and len(given) == (2 if called(node) in {"logaddexp", "hypot"} else 1):
        # In double neither shows.
        single = [expression("(v).to(torch.float32)", v=each) for each in given]
        yield expression(form, **dict(zip("ab", single, strict=False)))


@operator(Family.FUNCTION, "a missing abs, sign, square root or exponential")
def function_dropped(node: ast.AST) -> Iterator[ast.AST]:
    names = {"abs", "sign", "sqrt", "rsqrt", "exp", "exp2", "log", "log1p", "expm1", "floor", "ceil", "trunc", "square"}
    if isinstance(node, ast.Call) and called(node) in names | {"sigmoid", "tanh", "relu", "reciprocal", "conj", "real"}:
        given = operands(node)
        if len(given) == 1:
            yield given[0]


@operator(Family.FUNCTION, "another way to round")
def rounding(node: ast.AST) -> Iterator[ast.AST]:
    yield from _renamed(
        node, {"floor": "trunc", "trunc": "floor", "ceil": "round", "fmod": "remainder", "remainder": "fmod"}
    )
    if isinstance(node, ast.Call) and called(node) == "round" and len(operands(node)) == 1 and not is_device_code(node):
        yield expression("torch.floor(a + 0.5)", a=operands(node)[0])
    if isinstance(node, ast.keyword) and node.arg == "rounding_mode" and isinstance(node.value, ast.Constant):
        yield changed(node, value=ast.Constant("floor" if node.value.value == "trunc" else "trunc"))


@operator(Family.FUNCTION, "where() has only one of its branches")
def branch_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) == "where" and len(node.args) == 3 and not is_method(node):
        for kept in node.args[1:]:
            if number(kept) is None and "float(" not in ast.unparse(kept)[:6]:
                yield kept


@operator(Family.FUNCTION, "the branches of where() change places")
def branches_swapped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) == "where" and len(node.args) == 3 and not is_method(node):
        yield changed(node, args=[node.args[0], node.args[2], node.args[1]])
    if isinstance(node, ast.IfExp):
        yield changed(node, body=node.orelse, orelse=node.body)


@operator(Family.FUNCTION, "a clamp or a maximum is missing")
def clamp_dropped(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and called(node) in {"clamp", "clamp_min", "clamp_max"}:
        yield operands(node)[0]
    if isinstance(node, ast.Call) and called(node) in {"maximum", "minimum", "fmax", "fmin"} and len(node.args) == 2:
        yield node.args[0]
        yield node.args[1]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"max", "min"}:
        for each in node.args if len(node.args) == 2 else []:
            if number(each) is None:
                yield each


@operator(Family.FUNCTION, "inverse or transposed: a missing flip, transpose, roll or permute")
def rearrangement_dropped(node: ast.AST) -> Iterator[ast.AST]:
    names = {"flip", "transpose", "permute", "roll", "movedim", "t", "swapaxes", "unbind", "triu", "tril"}
    if isinstance(node, ast.Call) and called(node) in names and operands(node):
        yield operands(node)[0]
    if isinstance(node, ast.Attribute) and node.attr in {"mT", "mH", "T"}:
        yield node.value
