"""Python source as a tree, from any thread and with one kind of error."""

from __future__ import annotations

import ast
import threading

#: Python 3.11 and 3.12 count how deeply they nest in one place for all threads: two that parse at a time may raise
#: ``SystemError: AST constructor recursion depth mismatch``.
_ONE_AT_A_TIME = threading.Lock()


def syntax_tree(source: str | bytes, name: str = "<unknown>") -> ast.Module:
    """What :func:`ast.parse` makes of a file.

    Args:
        source: the text.
        name: of the file, for the error.

    Raises:
        SyntaxError: it is no Python, holds a null character or nests too deeply.
    """
    found = _parsed(source, name, "exec")
    assert isinstance(found, ast.Module)
    return found


def expression_tree(source: str) -> ast.expr:
    """What an expression is; raises as :func:`syntax_tree`."""
    found = _parsed(source, "<unknown>", "eval")
    assert isinstance(found, ast.Expression)
    return found.body


def _parsed(source: str | bytes, name: str, mode: str) -> ast.AST:
    with _ONE_AT_A_TIME:
        try:
            return ast.parse(source, name, mode)
        except (ValueError, RecursionError, MemoryError) as exc:
            raise SyntaxError(str(exc) or "it nests too deeply") from exc
