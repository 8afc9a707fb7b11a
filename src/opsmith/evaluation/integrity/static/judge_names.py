"""Does a kernel ask whether opsmith is there? What does so is no kernel for anybody who has not opsmith.

A name alone says nothing: a kernel may call a logger, a folder or a variable after opsmith. It is held against a kernel
that one statement names opsmith's package, or the variable of its judges, and asks Python for it: ``"opsmith" in
sys.modules``, ``find_spec("opsmith")``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opsmith.core.judging import JUDGING_VARIABLE
from opsmith.evaluation.integrity.static.findings import Kind, StaticFinding
from opsmith.evaluation.integrity.static.source import Scope, Source, constant_text, once_per_source, resolve

_PACKAGE = "opsmith"
#: What says which modules there are, and who runs.
_ASKED = frozenset(
    {
        *("sys.modules", "sys.argv", "sys.orig_argv", "sys._getframe", "sys._getframemodulename", "gc.get_objects"),
        *("importlib.util.find_spec", "importlib.find_loader", "pkgutil.find_loader", "pkgutil.resolve_name"),
        *("inspect.stack", "inspect.currentframe", "inspect.getmodule"),
        *("traceback.extract_stack", "traceback.format_stack", "traceback.walk_stack"),
    }
)
_VARIABLES = frozenset({"os.environ", "os.environb", "os.getenv", "os.environ.get", "os.environ.keys"})
#: Statements without the bodies of those that hold others.
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Assert, ast.Expr, ast.Return, ast.Raise, ast.For)


@once_per_source
def judge_names(source: Source) -> Iterator[StaticFinding]:
    """The statements of a file that ask for opsmith; each is decisive."""
    for node, scope in source.host_nodes():
        for part in _parts(node):
            asked = _asks(part, scope)
            if asked is not None:
                text = f"asks {asked} for opsmith"
                yield StaticFinding(
                    path=source.path, line=part.lineno, kind=Kind.JUDGE_LOOKUP, text=text, decisive=True
                )


def _parts(node: ast.AST) -> Iterator[ast.stmt | ast.expr]:
    if isinstance(node, _SIMPLE):
        yield node
    elif isinstance(node, (ast.If, ast.While)):
        yield node.test
    elif isinstance(node, ast.Lambda):
        yield node.body


def _asks(part: ast.AST, scope: Scope) -> str | None:
    """What is asked, by its qualified name."""
    names: set[str] = set()
    texts: set[str] = set()
    for node in ast.walk(part):
        if isinstance(node, (ast.Name, ast.Attribute)):
            found = resolve(node, scope)
            if found is not None:
                names.add(found.name)
        if isinstance(node, ast.expr):
            text = constant_text(node, scope)
            if text is not None:
                texts.add(text)
    if any(text == _PACKAGE or text.startswith(f"{_PACKAGE}.") for text in texts):
        return next((name for name in sorted(names) if name in _ASKED), None)
    if JUDGING_VARIABLE in texts:
        return next((name for name in sorted(names) if name in _VARIABLES), None)
    return None
