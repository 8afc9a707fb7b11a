"""Python source in the disguises that replies give it: invisible characters, prompts, line numbers, a patch's pluses.

A repair is tried on text that is no Python as it stands, so that nothing is changed within a string of a right kernel.
"""

from __future__ import annotations

import ast
import builtins
import html
import re
from collections.abc import Iterable, Iterator

from opsmith.core.syntax_tree import syntax_tree

#: Blanks that Python takes for no blank, and characters of no width.
_BLANKS = dict.fromkeys(map(ord, "\u00a0\u2007\u202f\u3000"), " ")
_NO_WIDTH = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff"))
#: Before each line: an interpreter's prompts, numbers, a patch's pluses.
_PREFIXES = (
    re.compile(r"(?:>>>|\.\.\.)(?: |$)"),
    re.compile(r"\s*\d+\s?[|:](?: |$)"),
    re.compile(r"\+"),
)
#: A notebook's commands, and the lines that head a patch.
_HEADS = re.compile(
    r"%%\w.*|[%!]\w.*|---(?: .*)?|\+\+\+ .*|@@ .*|diff --git .*|index [0-9a-f]+\.\..*|new file mode \d+"
)
_TAGS = re.compile(r"</?(?:pre|code)\b[^<>]*>")

#: What Python's parser raises for text that is no Python.
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def problem(source: str) -> Exception | None:
    """Why ``source`` is no Python; None if it is."""
    try:
        syntax_tree(source)
    except UNREADABLE as exc:
        return exc
    return None


def repaired(source: str) -> Iterator[str]:
    """What text that is no Python may have been meant to be, likely readings first."""
    visible = source.translate(_BLANKS | _NO_WIDTH)
    if visible != source:
        yield visible
    lines = [line for line in visible.split("\n") if not _HEADS.fullmatch(line)]
    yield "\n".join(lines)
    written = [line for line in lines if line.strip()]
    for prefix in _PREFIXES:
        if written and all(prefix.match(line) for line in written):
            yield "\n".join(prefix.sub("", line, count=1) for line in lines)


def without_tags(text: str) -> str:
    """Text with HTML's code as it is shown."""
    return html.unescape(_TAGS.sub("\n", text)) if _TAGS.search(text) else text


def completed(source: str, earlier: Iterable[str]) -> str:
    """A block with the blocks before it that define what it lacks, as where imports have a block of their own.

    Args:
        source: Python.
        earlier: further blocks, the nearest first.
    """
    missing = _missing(source)
    for block in earlier:
        if not missing:
            break
        if problem(block) is None and missing & _bound(syntax_tree(block)):
            source = f"{block.rstrip()}\n\n{source}"
            missing = _missing(source)
    return source


def defined(statements: Iterable[ast.AST]) -> Iterator[str]:
    """Names that statements of a module define, those within ``if``, ``for``, ``try`` and ``with`` included.

    What is imported is none of them, unless under another name: a test of a kernel imports it.
    """
    for statement in statements:
        match statement:
            case ast.FunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Assign():
                names = [node for target in statement.targets for node in ast.walk(target)]
                yield from (node.id for node in names if isinstance(node, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                yield name
            case ast.Expr(value=ast.NamedExpr(target=ast.Name(id=name))):
                yield name
            case ast.ImportFrom() | ast.Import():
                yield from (alias.asname for alias in statement.names if alias.asname)
            case ast.If() | ast.For() | ast.While() | ast.Try() | ast.With() | ast.ExceptHandler():
                yield from defined(ast.iter_child_nodes(statement))


def _missing(source: str) -> set[str]:
    """Names that a module reads and nothing in it binds."""
    tree = syntax_tree(source)
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return read - _bound(tree) - set(dir(builtins))


def _bound(tree: ast.AST) -> set[str]:
    """Names that anything in a module binds, in whatever scope."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias():
                names.add((node.asname or node.name).partition(".")[0])
    return names
