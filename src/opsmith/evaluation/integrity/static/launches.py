"""Which of the kernels that a file declares, and of the extensions that it builds, can its entry reach?

By name, over all files of the kernel: whatever a reachable function mentions is reachable. That finds too
much rather than too little, so that what is reported is indeed launched by nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from opsmith.evaluation.integrity.static.device_code import is_device_decorator
from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.source import Function, Scope, Source, resolve

_BUILDERS = frozenset(
    {"load", "load_inline", "_import_module_from_library", "CDLL", "LoadLibrary", "RawModule", "RawKernel"}
)
#: With these a file can reach any name without writing it.
_REACH_ALL = frozenset({"builtins.globals", "builtins.eval", "builtins.exec", "builtins.locals", "builtins.vars"})


def unreached(graph: Mentions, entries: Sequence[Function]) -> Iterator[StaticFinding]:
    """Device kernels and extensions that nothing reachable from the entries mentions.

    Args:
        graph: of the Python files of the kernel.
        entries: its entry functions; none where they are unknown, and then nothing is reported.
    """
    if not entries or graph.dynamic:
        return
    reached = graph.reachable({entry.name for entry in entries})
    kernels = [(source, node) for source, node in graph.kernels if node.name not in reached]
    none_reached = len(kernels) == len(graph.kernels)
    for source, node in kernels:
        if none_reached or not graph.is_mentioned(node.name):
            text = f"{node.name} is declared, and {entries[0].name} cannot reach it"
            yield StaticFinding(path=source.path, line=node.lineno, kind=Kind.DECOY, text=text)
    for source, line, name in graph.extensions:
        if name not in reached:
            text = f"{name} is built, and {entries[0].name} cannot reach it"
            yield StaticFinding(path=source.path, line=line, kind=Kind.UNUSED_EXTENSION, text=text)


class Mentions:
    """Which names the definition of each name mentions.

    Args:
        sources: the Python files of the kernel.

    Attributes:
        kernels: the functions of kernel languages.
        extensions: names that hold a compiled library, with the line that builds it.
        dynamic: whether a file looks names up that it does not write.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._mentions: dict[str, set[str]] = {}
        self._mentioned_by: dict[str, set[str]] = {}
        self.kernels: list[tuple[Source, Function]] = []
        self.extensions: list[tuple[Source, int, str]] = []
        self.dynamic = False
        for source in sources:
            self._read(source)

    def _read(self, source: Source) -> None:
        for node, scope in source.nodes:
            match node:
                case ast.FunctionDef(decorator_list=decorators):
                    if any(is_device_decorator(decorator, scope) for decorator in decorators):
                        self.kernels.append((source, node))
                case ast.Assign(targets=targets, value=value):
                    self._assignment(source, targets, value, scope)
                case ast.AnnAssign(target=target, value=value) if value is not None:
                    self._assignment(source, [target], value, scope)
                case ast.ImportFrom(names=names):
                    for alias in names:
                        if alias.asname:
                            self._add(alias.asname, alias.name)
                case ast.Name(id=name):
                    found = resolve(node, scope)
                    self.dynamic = self.dynamic or (found is not None and found.name in _REACH_ALL)
                    self._mention(name, scope)
                case ast.Attribute(attr=name) | ast.Constant(value=str(name)) if name.isidentifier():
                    self._mention(name, scope)

    def _assignment(self, source: Source, targets: Sequence[ast.expr], value: ast.expr, scope: Scope) -> None:
        """What is assigned to a name, everywhere, is part of the name's definition."""
        inside = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
        inside |= {part.attr for part in ast.walk(value) if isinstance(part, ast.Attribute)}
        for target in targets:
            for part in ast.walk(target):
                name = part.id if isinstance(part, ast.Name) else getattr(part, "attr", None)
                if name is not None:
                    self._add(name, *inside)
                    if isinstance(value, ast.Call) and _is_builder(value, scope):
                        self.extensions.append((source, value.lineno, name))

    def _add(self, name: str, *mentioned: str) -> None:
        self._mentions.setdefault(name, set()).update(mentioned)
        for other in mentioned:
            self._mentioned_by.setdefault(other, set()).add(name)

    def _mention(self, name: str, scope: Scope | None) -> None:
        """A definition mentions what stands in it and in whatever is defined inside it."""
        while scope is not None:
            if isinstance(scope.node, Function | ast.ClassDef):
                self._add(scope.node.name, name)
            scope = scope.parent

    def reachable(self, names: set[str]) -> set[str]:
        reached = set(names)
        pending = list(names)
        while pending:
            new = self._mentions.get(pending.pop(), set()) - reached
            reached |= new
            pending += new
        return reached

    def is_mentioned(self, name: str) -> bool:
        """Whether any other definition mentions it."""
        return bool(self._mentioned_by.get(name, set()) - {name})


def _is_builder(call: ast.Call, scope: Scope) -> bool:
    found = resolve(call.func, scope)
    name = found.name if found is not None else ""
    return name.rpartition(".")[2] in _BUILDERS and name.startswith(("torch.utils.cpp_extension", "ctypes", "cupy"))
