"""Triton kernels that a file declares. To import Triton declares none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from opsmith.evaluation.integrity.static.launches import Mentions
from opsmith.evaluation.integrity.static.source import Function, Scope, Source, once_per_source, resolve

#: What makes a Triton kernel of a function, as a decorator or called.
_JIT = frozenset(
    {
        *("triton.jit", "triton.JITFunction", "triton.runtime.jit.jit", "triton.runtime.jit.JITFunction"),
        "triton.experimental.gluon.jit",
    }
)
#: The same in source that a file makes at run time.
_JIT_IN_TEXT = re.compile(r"^\s*@triton\.jit\b", re.MULTILINE)


def own_triton_kernels(
    sources: Iterable[Source], mentions: Mentions, entries: Sequence[tuple[Source, Function]], others: Iterable[str]
) -> Iterator[str]:
    """The Triton kernels that a kernel declares, as ``path:line: name``.

    Those that its entry functions reach, and those beside them that no other op's entry reaches.

    Args:
        sources: the Python files of the kernel.
        mentions: which of their names mention which.
        entries: its entry functions, each with its file.
        others: the names of other ops' entry functions in these files.
    """
    reached = mentions.reachable({entry.name for _, entry in entries})
    elsewhere = mentions.reachable(set(others)) - reached
    beside = {source.path for source, _ in entries}
    for source in sources:
        for line, name in _declared(source):
            if name in reached or (source.path in beside and name not in elsewhere):
                yield f"{source.path}:{line}: {name}"


@once_per_source
def _declared(source: Source) -> Iterator[tuple[int, str]]:
    """The line and the name of each Triton kernel."""
    for node, scope in source.nodes:
        match node:
            case ast.FunctionDef(decorator_list=decorators) if any(is_jit(one, scope) for one in decorators):
                yield node.lineno, node.name
            case ast.Call(func=function, args=[ast.Name(id=name), *_]) if is_jit(function, scope):
                yield node.lineno, name
            case ast.Constant(value=str(text)) if _JIT_IN_TEXT.search(text):
                yield node.lineno, "in a string"


def is_jit(expression: ast.expr, scope: Scope) -> bool:
    """Whether a decorator, or what is called, makes a Triton kernel of a function."""
    while isinstance(expression, ast.Call):
        expression = expression.func
    found = resolve(expression, scope)
    return found is not None and found.name in _JIT


def asks_for_device(source: Source) -> bool:
    """Whether a file asks where a tensor lies, or whether there is a GPU: what runs then depends on the device."""
    return any(_asks(node, scope) for node, scope in source.host_nodes())


def _asks(node: ast.AST, scope: Scope) -> bool:
    match node:
        case ast.Attribute(attr="is_cuda" | "is_cpu"):
            return True
        case ast.Attribute(value=ast.Attribute(attr="device"), attr="type"):
            return True
        case ast.Attribute(attr="is_available"):
            found = resolve(node, scope)
            return found is not None and found.name == "torch.cuda.is_available"
    return False
