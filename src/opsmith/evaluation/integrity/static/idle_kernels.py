"""Kernels that a file runs for show: all that they write is memory that nobody reads.

Told from the text alone, and only where all of it is plain: each tensor that a kernel writes was made for it in the
same function, under a name that stands nowhere but among its arguments. One kernel that does more clears the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.source import Function, Scope, Source, resolve
from opsmith.evaluation.integrity.static.triton_kernels import is_jit

#: What makes new memory, by the name's end, of torch or of a tensor.
_MAKERS = frozenset({"empty", "empty_like", "empty_strided", "zeros", "zeros_like", "new_empty", "new_zeros", "full"})


def idle_kernels(sources: Sequence[Source]) -> Iterator[StaticFinding]:
    """The launches of a kernel's files whose results nobody reads; none where one of them does other work."""
    declared = {
        node.name: node
        for source in sources
        for node, scope in source.nodes
        if isinstance(node, ast.FunctionDef) and any(is_jit(one, scope) for one in node.decorator_list)
    }
    found: list[StaticFinding] = []
    for source in sources:
        statements = {id(node.value) for node, _ in source.host_nodes() if isinstance(node, ast.Expr)}
        for node, scope in source.host_nodes():
            if not isinstance(node, ast.Call) or (function := scope.function) is None:
                continue
            is_idle = _is_idle(source, node, scope, function, declared)
            if is_idle is None:
                continue
            if not is_idle or id(node) not in statements:
                return
            text = f"{ast.unparse(node.func)[:80]} writes nothing that anybody reads"
            found.append(StaticFinding(path=source.path, line=node.lineno, kind=Kind.IDLE_KERNEL, text=text))
    yield from found


def _is_idle(
    source: Source, call: ast.Call, scope: Scope, function: Function, declared: dict[str, ast.FunctionDef]
) -> bool | None:
    """Whether a call that runs a kernel does so for show; None of any other call."""
    match call.func:
        case ast.Subscript(value=ast.Name(id=name)) if name in declared:
            written = _written(call, declared[name])
            return (
                written is not None
                and written != []
                and all(_is_unread(source, one, call, function) for one in written)
            )
        case ast.Attribute(value=ast.Name(id=library)) if _is_library(library, scope):
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            made = [one for one in map(_tensors, given) if one]
            return bool(made) and all(_is_unread(source, name, call, function) for names in made for name in names)
    return None


def _is_library(name: str, scope: Scope) -> bool:
    """Whether a name holds what the file's own function, or a builder of libraries, returned when it was imported."""
    found = scope.lookup(name)
    if found is None or found[0].parent is not None or len(found[1]) != 1 or not isinstance(found[1][0], ast.Call):
        return False
    maker = resolve(found[1][0].func, found[0])
    if maker is None:
        return isinstance(found[1][0].func, ast.Name)  # A function of the file.
    return maker.name.startswith(("ctypes.", "torch.utils.cpp_extension."))


def _tensors(argument: ast.expr) -> list[ast.expr]:
    """The names in an argument that may be tensors: all but what is called."""
    called = {id(node.func) for node in ast.walk(argument) if isinstance(node, ast.Call)}
    called |= {id(node.value) for node in ast.walk(argument) if isinstance(node, ast.Attribute) and id(node) in called}
    return [node for node in ast.walk(argument) if isinstance(node, ast.Name) and id(node) not in called]


def _written(call: ast.Call, kernel: ast.FunctionDef) -> list[ast.expr] | None:
    """The arguments that a Triton kernel writes to; None where that is not plain."""
    parameters = [argument.arg for argument in (*kernel.args.posonlyargs, *kernel.args.args)]
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return None
    given = dict(zip(parameters, call.args, strict=False)) | {str(one.arg): one.value for one in call.keywords}
    stands_for: dict[str, set[str]] = {name: {name} for name in parameters}
    written: set[str] = set()
    for node in ast.walk(kernel):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                stands_for.setdefault(name, set()).update(*(stands_for.get(one, set()) for one in _names(value)))
            case ast.Call(func=ast.Attribute(attr=name), args=[pointer, *_]) if name == "store" or name.startswith(
                "atomic_"
            ):
                targets = set().union(*(stands_for.get(one, set()) for one in _names(pointer)))
                if not targets:
                    return None
                written |= targets
            case ast.Call(func=ast.Name(id=name)) if name not in {"range", "min", "max", "len", "float", "int"}:
                return None  # It may write for this one.
    return [given[name] for name in parameters if name in written and name in given]


def _names(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}


def _is_unread(source: Source, argument: ast.expr, call: ast.Call, function: Function) -> bool:
    """Whether an argument is memory made for this call, that stands nowhere else in the function."""
    if not isinstance(argument, ast.Name):
        return _makes_memory(argument) or _is_number(argument)
    if len(source.scopes[function].bindings.get(argument.id, [])) != 1 or not _is_made_in(function, argument.id):
        return False
    inside = {id(node) for node in ast.walk(call)}
    return not any(
        isinstance(node, ast.Name)
        and node.id == argument.id
        and isinstance(node.ctx, ast.Load)
        and id(node) not in inside
        for node in ast.walk(function)
    )


def _is_made_in(function: Function, name: str) -> bool:
    """Whether a name, and nothing else, is assigned new memory, by itself or as one of several in a tuple."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return _makes_memory(value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                for one, made in zip(names, values, strict=True):
                    if isinstance(one, ast.Name) and one.id == name:
                        return _makes_memory(made)
    return False


def _makes_memory(expression: ast.expr) -> bool:
    return (
        isinstance(expression, ast.Call)
        and isinstance(expression.func, ast.Attribute)
        and expression.func.attr in _MAKERS
    )


def _is_number(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Constant)
