"""Which functions of a Python file are code of a kernel language, which Python never runs as it stands.

Most languages mark them with a decorator. Pallas is handed a function that Python runs once, on references to memory,
to record a kernel: the function is named where ``pallas_call`` is called, or in a call of a function that hands its
parameter on to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from opsmith.evaluation.integrity.static.scopes import Function, Scope, resolve

#: Where the decorators of kernel languages are.
_LANGUAGES = (
    *("triton", "helion", "tilelang", "cutlass", "numba", "taichi", "warp", "tvm", "pallas"),
    *("cuda.tile", "cupyx.jit", "jax.experimental.pallas"),
)
_PALLAS = frozenset(
    {
        "jax.experimental.pallas.pallas_call",
        "jax.experimental.pallas.kernel",
        "jax.experimental.pallas.mosaic_gpu.kernel",
    }
)
_PARTIAL = "functools.partial"
#: Names that stand for others, and partial applications of partial applications.
_DEEPEST = 8


def is_device_decorator(decorator: ast.expr, scope: Scope) -> bool:
    """Whether a decorator makes a function code of a kernel language."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    found = resolve(target, scope)
    if found is None:
        return False
    if found.name == _PARTIAL and isinstance(decorator, ast.Call) and decorator.args:
        return is_device_decorator(decorator.args[0], scope)
    return any(found.name == name or found.name.startswith(f"{name}.") for name in _LANGUAGES)


def handed_over(nodes: Sequence[tuple[ast.AST, Scope]], scopes: Mapping[ast.AST, Scope]) -> Iterator[Function]:
    """The functions that are handed to Pallas, and those that only these call.

    A function that is named anywhere else as well runs as Python, too, and is none of them.

    Args:
        nodes: every node of a file with its scope.
        scopes: the scope that each function opens.
    """
    handed = _Handing(nodes)
    if not handed.bodies:
        return
    uses: dict[str, list[tuple[ast.Name, Scope]]] = {}
    for node, scope in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses.setdefault(node.id, []).append((node, scope))

    def named(function: Function) -> list[tuple[ast.Name, Scope]]:
        outer = scopes[function].parent
        return [(node, scope) for node, scope in uses.get(function.name, ()) if _means(node, scope, outer)]

    for function, by in handed.bodies.items():
        if all(id(node) in by for node, _ in named(function)):
            yield function
    others = [node for node in scopes if isinstance(node, Function)]
    for _ in range(_DEEPEST):
        for function in others:
            where = [] if scopes[function].device else named(function)
            if where and all(scope.device for _, scope in where):
                yield function


def _means(node: ast.Name, scope: Scope, outer: Scope | None) -> bool:
    found = scope.lookup(node.id)
    return found is not None and found[0] is outer


class _Handing:
    """Follows what reaches ``pallas_call`` as its first argument.

    Attributes:
        bodies: each function that does -> the names by which it was handed over, by identity.
    """

    def __init__(self, nodes: Sequence[tuple[ast.AST, Scope]]) -> None:
        self.bodies: dict[Function, set[int]] = {}
        self._defined = {(id(scope), node.name): node for node, scope in nodes if isinstance(node, Function)}
        calls = [(node, scope) for node, scope in nodes if isinstance(node, ast.Call) and node.args]
        #: Functions of the file that hand a parameter on, each with its place.
        self._through: dict[str, int] = {}
        known = -1
        while known != len(self._through):
            known = len(self._through)
            for call, scope in calls:
                self._call(call, scope)

    def _call(self, call: ast.Call, scope: Scope) -> None:
        found = resolve(call.func, scope)
        if found is not None and found.name in _PALLAS:
            self._follow(call.args[0], scope, 0)
        elif isinstance(call.func, ast.Name):
            place = self._through.get(call.func.id, len(call.args))
            for argument in call.args[place : place + 1]:
                self._follow(argument, scope, 0)

    def _follow(self, node: ast.expr, scope: Scope, depth: int) -> None:
        if depth > _DEEPEST:
            return
        if isinstance(node, ast.Call) and node.args:
            found = resolve(node.func, scope)
            if found is not None and found.name == _PARTIAL:
                self._follow(node.args[0], scope, depth + 1)
            return
        if not isinstance(node, ast.Name) or (found_at := scope.lookup(node.id)) is None:
            return
        where, bound = found_at
        function = self._defined.get((id(where), node.id))
        if function is not None:
            self.bodies.setdefault(function, set()).add(id(node))
        elif bound == [None] and isinstance(where.node, Function):
            names = [argument.arg for argument in (*where.node.args.posonlyargs, *where.node.args.args)]
            if node.id in names:
                self._through.setdefault(where.node.name, names.index(node.id))
        for value in bound:
            if isinstance(value, ast.expr):
                self._follow(value, where, depth + 1)
