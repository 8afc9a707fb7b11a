"""Python source as a tree, from any thread and with one kind of error."""

from __future__ import annotations

import ast
import threading
from typing import Any, Literal

#: Python 3.11 and 3.12 count how deeply they nest in one place for all threads: two that parse at a time may raise
#: ``SystemError: AST constructor recursion depth mismatch``.
_ONE_AT_A_TIME = threading.Lock()


def syntax_tree(source: str | bytes, name: str = "<unknown>", *, mode: Literal["exec", "eval"] = "exec") -> Any:
    """What :func:`ast.parse` makes of a text: a module, or an expression under ``mode="eval"``.

    Args:
        source: the text.
        name: of the file, for the error.
        mode: what the text is.

    Raises:
        SyntaxError: it is no Python, holds a null character or nests too deeply.
    """
    with _ONE_AT_A_TIME:
        try:
            return ast.parse(source, name, mode)
        except (ValueError, RecursionError, MemoryError) as exc:
            raise SyntaxError(str(exc) or "it nests too deeply") from exc
