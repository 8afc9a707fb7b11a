"""What a kernel is compared with when it is reviewed, and how they differ."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping

import msgspec

from opsmith.core.case import digest
from opsmith.core.syntax_tree import syntax_tree
from opsmith.reviews.records import Review

#: Lines of a difference that are shown; a kernel that was written anew is read as a whole.
MOST_DIFFERENCES = 200


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A text that a kernel is compared with.

    Attributes:
        name: what it is.
        text: its source.
    """

    name: str
    text: str


def difference(before: str, after: str) -> str:
    """A unified difference without its head; empty where nothing differs."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]
    if len(lines) > MOST_DIFFERENCES:
        lines = [*lines[:MOST_DIFFERENCES], f"... and {len(lines) - MOST_DIFFERENCES:,} lines more"]
    return "\n".join(lines)


def changed_files(covered: Mapping[str, str], before: Review | None) -> dict[str, bool | None]:
    """Path -> whether a file is another than in a review of the version before; None where that is not known.

    Args:
        covered: the files that a review covers now, path -> content hash.
        before: the review.
    """
    known = before.files if before is not None else {}
    return {path: known.get(path) != content if known else None for path, content in sorted(covered.items())}


def left_files(covered: Mapping[str, str], before: Review | None) -> list[str]:
    """The files that the version before had, and this one has not; that of the entry may have another name."""
    if before is None:
        return []
    entry = digest(before.source.encode())
    return sorted(path for path, content in before.files.items() if path not in covered and content != entry)


def function_source(source: str, name: str) -> str:
    """The function or class of a file that holds many; all of the file where it is not defined there."""
    try:
        body = syntax_tree(source).body
    except SyntaxError:
        return source
    found = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name]
    return (ast.get_source_segment(source, found[-1]) or source) if found else source
