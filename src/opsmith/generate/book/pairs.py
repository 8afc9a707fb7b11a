"""A pair of a book: a PyTorch module and the Triton that torch's compiler writes for it, with what is known of both."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import msgspec

from opsmith.core.case import digest
from opsmith.core.syntax_tree import syntax_tree


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a book.

    Attributes:
        task: name of the problem.
        module: source of the problem: ``Model``, ``get_inputs`` and ``get_init_inputs``.
        triton: source that defines ``ModelNew``.
        sizes: ``full``, or ``small`` where the problem's smaller sizes were compiled.
        kernels: number of kernels in Triton.
        library_calls: what ``triton`` leaves to libraries, matrix products and convolutions for example.
        ast_hash: of the module's syntax, without docstrings and comments.
        graph_hash: of the ops that the compiler was given, with their shapes.
        kernel_hash: of the kernels, whatever they are called.
        validated: the judge ran both on the same inputs and accepted ``triton``.
        validated_on: ``interpreter`` for Triton's on a CPU, else the name of the GPU.
        problem: why it is not validated, in one line; None where it is.
        license: SPDX expression, of the module and of the text made from it.
        torch: version of the compiler.
        triton_version: that the text is written for.
        architecture: of the GPU that was compiled for.
    """

    task: str
    module: str
    triton: str
    sizes: str
    kernels: int
    library_calls: tuple[str, ...]
    ast_hash: str
    graph_hash: str
    kernel_hash: str
    validated: bool
    validated_on: str
    problem: str | None
    license: str
    torch: str
    triton_version: str
    architecture: str


class NotPaired(msgspec.Struct, frozen=True, kw_only=True):
    """A problem without a pair.

    Attributes:
        task: its name.
        reason: in one line.
    """

    task: str
    reason: str


def ast_hash(source: str) -> str:
    """Equal for sources that differ in comments, layout and docstrings only."""
    tree = syntax_tree(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
    return digest(ast.dump(tree).encode())


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def library_calls(source: str) -> tuple[str, ...]:
    """What the ``forward`` of a solution calls of PyTorch that computes, in alphabetical order."""
    tree = syntax_tree(source)
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew")
    forward = next(node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward")
    names = {ast.unparse(node.func) for node in ast.walk(forward) if isinstance(node, ast.Call)}
    return tuple(sorted(name for name in names if name.startswith("torch.")))


#: Ways in which two pairs are the same, by the field that tells.
KEYS = {"ast": "ast_hash", "graph": "graph_hash", "kernel": "kernel_hash"}


def distinct(pairs: Iterable[Pair]) -> tuple[list[Pair], dict[str, int]]:
    """The pairs of which no earlier one has the module, the graph or the kernels, and how many others there are.

    Validated pairs come before others, so that of two that are the same the better one stays.

    Returns:
        the pairs by their tasks' order, and for each of :data:`KEYS` the number of pairs that it left out.
    """
    given = list(pairs)
    seen: dict[str, set[str]] = {kind: set() for kind in KEYS}
    kept: set[str] = set()
    left_out = dict.fromkeys(KEYS, 0)
    for pair in sorted(given, key=lambda pair: not pair.validated):
        same = next((kind for kind, field in KEYS.items() if getattr(pair, field) in seen[kind]), None)
        if same is not None:
            left_out[same] += 1
            continue
        kept.add(pair.task)
        for kind, field in KEYS.items():
            seen[kind].add(getattr(pair, field))
    return [pair for pair in given if pair.task in kept], left_out
