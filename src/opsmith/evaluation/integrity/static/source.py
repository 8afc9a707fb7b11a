"""A Python file as a syntax tree with scopes, in which a name leads to the import that it came from."""

from __future__ import annotations

import ast
import builtins
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

Function = ast.FunctionDef | ast.AsyncFunctionDef
Found = TypeVar("Found")
#: Packages whose decorators make a function code of another language, which Python never runs as it stands.
DEVICE_LANGUAGES = frozenset({"triton", "helion", "tilelang", "cutlass", "numba", "taichi", "warp", "tvm", "pallas"})
#: A chain of aliases longer than this leads nowhere.
_LONGEST_CHAIN = 16
#: Strings put together from constants may double with every line.
_LONGEST_TEXT = 1 << 16


class Resolved(NamedTuple):
    """Where a name comes from: ``torch.nn.functional.relu``.

    Attributes:
        name: fully qualified; a relative import keeps its dots.
        certain: nothing else in the file is bound to any of the names on the way.
        plain: written as it is, not put together from strings.
    """

    name: str
    certain: bool
    plain: bool = True


class Scope:
    """The names that a module, class or function binds.

    Attributes:
        node: what opens the scope.
        parent: the scope around it, or None for a module.
        bindings: name -> what is bound to it, in order: a qualified name for an import, an
            expression for an assignment, None for anything else.
        device: whether it is code of a kernel language.
    """

    def __init__(self, node: ast.AST, parent: Scope | None) -> None:
        self.node, self.parent = node, parent
        self.bindings: dict[str, list[str | ast.expr | None]] = {}
        self.stars: list[str] = []
        #: What names were found to stand for. A name that is being looked up stands for nothing meanwhile:
        #: aliases may run in circles, and a hostile file holds many.
        self.resolved: dict[str, Resolved | None] = {}
        self.texts: dict[str, str | None] = {}
        self.device: bool = parent is not None and parent.device
        if isinstance(node, Function | ast.Lambda):
            arguments = node.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                self.bind(argument.arg, None)
            for variadic in (arguments.vararg, arguments.kwarg):
                if variadic is not None:
                    self.bind(variadic.arg, None)

    def bind(self, name: str, value: str | ast.expr | None) -> None:
        self.bindings.setdefault(name, []).append(value)

    @property
    def function(self) -> Function | None:
        """The function that this scope belongs to."""
        scope: Scope | None = self
        while scope is not None and not isinstance(scope.node, Function):
            scope = scope.parent
        return None if scope is None else scope.node  # type: ignore[return-value]

    def lookup(self, name: str) -> tuple[Scope, list[str | ast.expr | None]] | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bindings and (scope is self or not isinstance(scope.node, ast.ClassDef)):
                return scope, scope.bindings[name]
            scope = scope.parent
        return None

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope


class Source:
    """One Python file.

    Attributes:
        path: relative to the kernel's folder.
        tree: its syntax tree.
        nodes: every node but docstrings, each with its scope.
        scopes: the scope that each module, class, function or lambda opens.
        within: the nodes of each function that Python runs, but of no function inside it.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it does not parse.
    """

    def __init__(self, path: str, text: bytes) -> None:
        self.path = path
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Invalid escapes in a stranger's strings are not ours to report.
            self.tree = ast.parse(text)
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
            if isinstance(node, Function) and any(self.is_device_decorator(d, scope) for d in node.decorator_list):
                self.scopes[node].device = True
        for scope in self.scopes.values():  # Outer scopes come first.
            scope.device = scope.device or (scope.parent is not None and scope.parent.device)
        self.within: dict[Function, list[tuple[ast.AST, Scope]]] = {}
        for node, scope in self.host_nodes():
            if (function := scope.function) is not None:
                self.within.setdefault(function, []).append((node, scope))

    def functions(self) -> Iterator[tuple[Function, Scope]]:
        """Every function that is Python, with its own scope."""
        for node, scope in self.scopes.items():
            if isinstance(node, Function) and not scope.device:
                yield node, scope

    def host_nodes(self) -> Iterator[tuple[ast.AST, Scope]]:
        """Every node that Python runs."""
        return ((node, scope) for node, scope in self.nodes if not scope.device)

    def is_device_decorator(self, decorator: ast.expr, scope: Scope) -> bool:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        found = resolve(target, scope)
        return found is not None and found.name.partition(".")[0] in DEVICE_LANGUAGES


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


# ---------------------------------------------------------------- resolving


def resolve(node: ast.expr | None, scope: Scope, depth: int = 0) -> Resolved | None:
    """The qualified name that an expression stands for, or None where the file does not tell.

    Looks through aliases, ``getattr`` with a constant name, ``__import__``, ``sys.modules[...]`` and
    ``vars(module)[...]``.
    """
    if depth > _LONGEST_CHAIN:
        return None
    match node:
        case ast.Name(id=name):
            return _resolve_name(name, scope, depth)
        case ast.Attribute(value=value, attr=attr):
            return _member(resolve(value, scope, depth + 1), attr)
        case ast.Call(func=function, args=args):
            return _resolve_call(resolve(function, scope, depth + 1), args, scope, depth)
        case ast.Subscript(value=value, slice=key):
            return _resolve_item(value, constant_text(key, scope), scope, depth)
    return None


def _member(base: Resolved | None, attr: str) -> Resolved | None:
    return None if base is None else Resolved(f"{base.name}.{attr}", base.certain, base.plain)


def _resolve_name(name: str, scope: Scope, depth: int) -> Resolved | None:
    found = scope.lookup(name)
    if found is None:
        stars = scope.module.stars
        if hasattr(builtins, name) or not stars:
            return Resolved(f"builtins.{name}", certain=not stars) if hasattr(builtins, name) else None
        return Resolved(f"{stars[0]}.{name}", certain=False)
    where, bound = found
    if name not in where.resolved:
        where.resolved[name] = None
        where.resolved[name] = _first_meaning(bound, where, depth)
    return where.resolved[name]


def _first_meaning(bound: list[str | ast.expr | None], scope: Scope, depth: int) -> Resolved | None:
    for value in bound:
        meant = Resolved(value, certain=True) if isinstance(value, str) else resolve(value, scope, depth + 1)
        if meant is not None:
            return Resolved(meant.name, meant.certain and len(bound) == 1, meant.plain)
    return None


def _resolve_call(function: Resolved | None, args: list[ast.expr], scope: Scope, depth: int) -> Resolved | None:
    match function.name if function else None, args:
        case "builtins.getattr", [owner, name, *_]:
            text = constant_text(name, scope)
            base = resolve(owner, scope, depth + 1)
            if text is None or base is None or not text.isidentifier():
                return None
            return Resolved(f"{base.name}.{text}", base.certain, base.plain and isinstance(name, ast.Constant))
        case (("builtins.__import__" | "importlib.import_module"), [name, *_]):
            text = constant_text(name, scope)
            return None if text is None else Resolved(text, certain=True, plain=False)
        case "builtins.vars", [owner]:
            return _member(resolve(owner, scope, depth + 1), "__dict__")
    return None


def _resolve_item(owner: ast.expr, key: str | None, scope: Scope, depth: int) -> Resolved | None:
    base = resolve(owner, scope, depth + 1)
    if base is None or key is None:
        return None
    if base.name == "sys.modules":
        return Resolved(key, base.certain, plain=False)
    if base.name.endswith(".__dict__"):
        return Resolved(f"{base.name.removesuffix('.__dict__')}.{key}", base.certain, plain=False)
    return None


def constant_text(node: ast.expr | None, scope: Scope, depth: int = 0) -> str | None:
    """The string that an expression of constants makes: a literal, a sum, an f-string, a joined list, an alias."""
    if depth > _LONGEST_CHAIN:
        return None
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined([left, right], "", scope, depth)
        case ast.JoinedStr(values=values):
            return _joined(values, "", scope, depth)
        case ast.FormattedValue(value=value):
            return constant_text(value, scope, depth + 1)
        case ast.Call(func=ast.Attribute(value=separator, attr="join"), args=[ast.List(elts=parts)]):
            between = constant_text(separator, scope, depth + 1)
            return None if between is None else _joined(parts, between, scope, depth)
        case ast.Name(id=name) if (found := scope.lookup(name)) is not None and len(found[1]) == 1:
            where, (bound,) = found
            if name not in where.texts:
                where.texts[name] = None
                where.texts[name] = constant_text(bound, where, depth + 1) if isinstance(bound, ast.expr) else None
            return where.texts[name]
    return None


def _joined(parts: list[ast.expr], separator: str, scope: Scope, depth: int) -> str | None:
    texts = [text for part in parts if (text := constant_text(part, scope, depth + 1)) is not None]
    whole = separator.join(texts)
    return whole if len(texts) == len(parts) and len(whole) <= _LONGEST_TEXT else None
