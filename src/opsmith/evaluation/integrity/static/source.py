"""A Python file as a syntax tree with scopes, in which a name leads to the import that it came from."""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar
from weakref import WeakKeyDictionary

from opsmith.core.syntax_tree import syntax_tree
from opsmith.evaluation.integrity.static.device_code import handed_over, is_device_decorator
from opsmith.evaluation.integrity.static.scopes import Function, Resolved, Scope, constant_text, resolve

__all__ = [
    "Function",
    "Resolved",
    "Scope",
    "Source",
    "constant_text",
    "is_entry_name",
    "is_tensor_parameter",
    "once_per_source",
    "resolve",
]

Found = TypeVar("Found")


class Source:
    """One Python file.

    Attributes:
        path: relative to the kernel's folder.
        tree: its syntax tree.
        nodes: every node but docstrings, each with its scope.
        scopes: the scope that each module, class, function or lambda opens.
        within: the nodes of each function that Python runs, but of no function inside it.

    Raises:
        SyntaxError: it does not parse.
        RecursionError: it nests too deeply to be walked through.
    """

    def __init__(self, path: str, text: bytes) -> None:
        self.path = path
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Invalid escapes in a stranger's strings are not ours to report.
            self.tree = syntax_tree(text)
        self.scopes: dict[ast.AST, Scope] = {}
        self.nodes: list[tuple[ast.AST, Scope]] = []
        self._read()

    def _read(self) -> None:
        root = Scope(self.tree, None)
        self.scopes[self.tree] = root
        pending: list[tuple[ast.AST, Scope]] = [(self.tree, root)]
        while pending:
            node, scope = pending.pop()
            self.nodes.append((node, scope))
            _bind(node, scope)
            inner = scope
            if isinstance(node, Function | ast.ClassDef | ast.Lambda):
                inner = self.scopes[node] = Scope(node, scope)
            outside = set(map(id, _outside(node)))
            children = [child for child in ast.iter_child_nodes(node) if not _is_docstring(child, node)]
            pending += [(child, scope if id(child) in outside else inner) for child in reversed(children)]
        for node, scope in self.nodes:  # Only now is every import known.
            if isinstance(node, Function) and any(is_device_decorator(d, scope) for d in node.decorator_list):
                self.scopes[node].device = True
        self._pass_on()
        for handed in handed_over(self.nodes, self.scopes):
            self.scopes[handed].device = True
            self._pass_on()
        self.within: dict[Function, list[tuple[ast.AST, Scope]]] = {}
        for node, scope in self.host_nodes():
            if (function := scope.function) is not None:
                self.within.setdefault(function, []).append((node, scope))

    def _pass_on(self) -> None:
        """What stands in code of a kernel language is of that language, too."""
        for scope in self.scopes.values():  # Outer scopes come first.
            scope.device = scope.device or (scope.parent is not None and scope.parent.device)

    def functions(self) -> Iterator[tuple[Function, Scope]]:
        """Every function that is Python, with its own scope."""
        for node, scope in self.scopes.items():
            if isinstance(node, Function) and not scope.device:
                yield node, scope

    def host_nodes(self) -> Iterator[tuple[ast.AST, Scope]]:
        """Every node that Python runs."""
        return ((node, scope) for node, scope in self.nodes if not scope.device)


def once_per_source(find: Callable[[Source], Iterable[Found]]) -> Callable[[Source], tuple[Found, ...]]:
    """A search that remembers what it found in a file for as long as the file is in memory.

    Args:
        find: the search; what it finds refers to no file and no node.
    """
    known: WeakKeyDictionary[Source, tuple[Found, ...]] = WeakKeyDictionary()

    @functools.wraps(find)
    def search(source: Source) -> tuple[Found, ...]:
        if source not in known:
            known[source] = tuple(find(source))
        return known[source]

    return search


def _outside(node: ast.AST) -> list[ast.AST]:
    """The parts of a definition that are evaluated around it: decorators, defaults, annotations, bases."""
    if isinstance(node, Function):
        defaults = [*node.args.defaults, *[value for value in node.args.kw_defaults if value is not None]]
        return [*node.decorator_list, *defaults, *([node.returns] if node.returns else [])]
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *node.keywords]
    return []


def _is_docstring(child: ast.AST, parent: ast.AST) -> bool:
    """Whether the child is a statement that is nothing but a string: a docstring, or a comment in disguise."""
    return (
        isinstance(child, ast.Expr)
        and isinstance(child.value, ast.Constant)
        and isinstance(child.value.value, str)
        and not isinstance(parent, ast.Expression)
    )


def _bind(node: ast.AST, scope: Scope) -> None:
    match node:
        case ast.Import() | ast.ImportFrom():
            _bind_import(node, scope)
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                _bind_target(target, value, scope)
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            _bind_target(target, value, scope)
        case (
            ast.AugAssign(target=target)
            | ast.For(target=target)
            | ast.AsyncFor(target=target)
            | ast.withitem(optional_vars=ast.expr() as target)
        ):
            _bind_target(target, None, scope)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            scope.bind(name, None)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            for name in names:  # Whatever it is bound to here, it is bound to more than once.
                scope.module.bind(name, None)
                scope.bind(name, None)


def _bind_import(node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
    """``import a.b`` binds ``a``; ``from .a import b as c`` binds ``c`` to ``.a.b``."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            first = alias.name.partition(".")[0]
            scope.bind(alias.asname or first, alias.name if alias.asname else first)
            continue
        origin = "." * node.level + (node.module or "")
        if alias.name == "*":
            scope.stars.append(origin)
        else:
            scope.bind(alias.asname or alias.name, f"{origin}.{alias.name}" if node.module else origin + alias.name)


def _bind_target(target: ast.expr, value: ast.expr | None, scope: Scope) -> None:
    if isinstance(target, ast.Name):
        scope.bind(target.id, value)
    elif isinstance(target, ast.Starred):
        _bind_target(target.value, None, scope)
    elif isinstance(target, ast.Tuple | ast.List):
        paired = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        values = value.elts if paired else [None] * len(target.elts)  # type: ignore[union-attr]
        for part, own in zip(target.elts, values, strict=True):
            _bind_target(part, own, scope)


def is_tensor_parameter(node: ast.expr, scope: Scope) -> bool:
    """Whether it is a parameter that is a tensor: as it says, or as the first of a kernel's usually is."""
    function = scope.function
    if not isinstance(node, ast.Name) or function is None or len(scope.bindings.get(node.id, ())) != 1:
        return False
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    for place, argument in enumerate(arguments):
        if argument.arg == node.id:
            note = resolve(argument.annotation, scope)
            if note is not None:
                return note.name == "torch.Tensor"
            if function.name == "forward":
                return place == 1  # After `self`.
            return place == 0 and is_entry_name(function.name) and not node.id.startswith(("size", "shape", "dim"))
    return False


def is_entry_name(name: str) -> bool:
    """Whether a function is by its name what a kernel directory asks for."""
    return name.endswith("_kernel_impl")
