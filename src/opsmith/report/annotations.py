"""A run as annotations of GitHub's: a line for each failing op, which the web page shows beside the kernel's source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from opsmith.core.kernel import Kernel
from opsmith.core.syntax_tree import syntax_tree
from opsmith.report.outcome import outcome
from opsmith.report.results import Results

#: GitHub shows no more than these of a step.
MOST = 10


def error_lines(results: Results, slower: Mapping[str, str]) -> Iterator[str]:
    """At most :data:`MOST` lines ``::error file=...,line=...,title=...::message``.

    Args:
        results: of the run.
        slower: op -> what is said of its speed, of those that count as failed because they are slow.
    """
    kernels = {planned.op: planned.kernel for planned in results.plan.ops}
    first = {case.op: case for case in reversed(results.failing(len(kernels)))}
    told = 0
    for name, op in results.summary.per_op.items():
        if told == MOST or (op.accepted and name not in slower):
            continue
        told += 1
        case = first.get(name)
        found = "there is no kernel" if case is None else f"{case.inputs}: {case.detail}\n{case.repro}"
        said = slower.get(name, found)
        title = f"{name} {'SLOWER' if op.accepted else outcome(op)}"
        place = _place(kernels.get(name))
        yield f"::error {place}title={_property(title)}::{_data(said)}"


def _place(kernel: Kernel | None) -> str:
    """Where the kernel's function begins, as properties; empty where there is no file below the working directory."""
    if kernel is None or kernel.root is None:
        return ""
    file, _, function = kernel.entry.rpartition(":")
    path = Path(kernel.root) / file
    try:
        shown = path.resolve().relative_to(Path.cwd())
        tree = syntax_tree(path.read_bytes())
    except SyntaxError as exc:
        return f"file={_property(str(shown))},line={exc.lineno or 1},"
    except (OSError, ValueError):
        return ""
    named = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == function]
    return f"file={_property(str(shown))},line={named[0].lineno if named else 1},"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
