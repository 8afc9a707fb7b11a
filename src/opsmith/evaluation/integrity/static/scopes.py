"""The names that a Python file binds, scope by scope, and the qualified name that an expression stands for."""

from __future__ import annotations

import ast
import builtins
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
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
