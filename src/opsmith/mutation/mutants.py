"""Mutants of a source: every place where an operator applies, and the source with that one fault."""

from __future__ import annotations

import ast
import difflib
import functools
import types
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from opsmith.core.case import digest
from opsmith.mutation.operators import Operator
from opsmith.mutation.syntax import parent, parse


@dataclass(frozen=True)
class Place:
    """A node that an operator puts another in the place of.

    Attributes:
        operator: which.
        region: the top-level statement of the file that the node stands in.
        node: in the tree.
        new: in its place.
    """

    operator: Operator
    region: ast.stmt
    node: ast.AST
    new: ast.AST


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """A source with one fault.

    Attributes:
        name: of its content: op, operator and source.
        op: the overload whose kernel it is.
        operator: what made the fault.
        family: the operator's.
        source: the whole text of the file.
        before: the changed lines as they were.
        after: the changed lines.
        same_code: it compiles to the code that the original compiles to.
    """

    name: str
    op: str
    operator: str
    family: str
    source: str
    before: str
    after: str
    same_code: bool


class Source:
    """The text of a kernel's file, and the places in it where operators apply.

    Args:
        text: the file.
        entry: the function that the kernel is; what it does not reach is left as it is.
        op: the overload.

    Raises:
        SyntaxError: the text is no Python.
    """

    def __init__(self, text: str, entry: str, op: str) -> None:
        self._op = op
        self._tree = parse(text)
        self._regions = _reachable(self._tree, entry)
        self._texts = [ast.unparse(node) for node in self._tree.body]
        self._original = _compiled("\n".join(self._texts))

    def places(self, operator: Operator) -> list[Place]:
        """Where an operator applies, with what it puts there."""
        return [
            Place(operator, region, node, new)
            for region in self._regions
            for node in ast.walk(region)
            for new in operator.rewrite(node)
        ]

    def mutant_at(self, place: Place) -> Mutant | None:
        """The mutant of a place; None if its text is the original's, or no Python."""
        number = next(index for index, each in enumerate(self._tree.body) if each is place.region)
        mutated = _with(place.region, place.node, place.new)
        if mutated == self._texts[number]:
            return None
        text = "\n".join([*self._texts[:number], mutated, *self._texts[number + 1 :]]) + "\n"
        code = _compiled(text)
        if code is None:
            return None
        before, after = _difference(self._texts[number], mutated)
        return Mutant(
            name=digest(f"{self._op}\0{place.operator.name}\0{text}".encode()),
            op=self._op,
            operator=place.operator.name,
            family=place.operator.family.value,
            source=text,
            before=before,
            after=after,
            same_code=self._original is not None and _same_code(self._original, code),
        )

    def mutants(self, operators: Iterable[Operator]) -> Iterator[Mutant]:
        """Every mutant; those of one text are one."""
        seen = set()
        for operator in operators:
            for place in self.places(operator):
                mutant = self.mutant_at(place)
                if mutant is not None and mutant.source not in seen:
                    seen.add(mutant.source)
                    yield mutant


def sliced(source: str, entry: str) -> str:
    """A file with no more than an entry needs: its imports and what the entry reaches."""
    tree = _cached_tree(source)
    kept = set(map(id, _reachable(tree, entry)))
    used = {each.id for node in tree.body if id(node) in kept for each in ast.walk(node) if isinstance(each, ast.Name)}
    body = [
        node
        for node in tree.body
        if id(node) in kept or isinstance(node, (ast.Import, ast.ImportFrom)) or _assigned(node) & used
    ]
    return ast.unparse(ast.Module(body, [])) + "\n"


@functools.lru_cache(maxsize=16)
def _cached_tree(source: str) -> ast.Module:
    return parse(source)


def _assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _reachable(tree: ast.Module, entry: str) -> list[ast.stmt]:
    """The functions and classes of a file that an entry reaches by name, in the order of the file."""
    defined = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assigned = {name: node for node in tree.body for name in _assigned(node)}
    found: set[str] = set()
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        node = defined.get(name) or assigned.get(name)
        if node is None or name in found:
            continue
        found.add(name)
        waiting += [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    return [node for name, node in defined.items() if name in found]


def _with(region: ast.stmt, node: ast.AST, new: ast.AST) -> str:
    """The text of a statement with ``new`` in the place of ``node``; the tree stays as it was."""
    if node is region:
        return ast.unparse(new)
    above = parent(node)
    assert above is not None
    for name, value in ast.iter_fields(above):
        if value is node:
            setattr(above, name, new)
            try:
                return ast.unparse(region)
            finally:
                setattr(above, name, node)
        if isinstance(value, list):
            for index, each in enumerate(value):
                if each is node:
                    value[index] = new
                    try:
                        return ast.unparse(region)
                    finally:
                        value[index] = node
    raise AssertionError("a node is no child of the one above it")


def _compiled(text: str) -> types.CodeType | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            return compile(text, "<mutant>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return None


def _same_code(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two code objects run the same instructions on the same constants and names."""
    if one.co_code != other.co_code or len(one.co_consts) != len(other.co_consts):
        return False
    if (one.co_names, one.co_varnames, one.co_freevars) != (other.co_names, other.co_varnames, other.co_freevars):
        return False
    for left, right in zip(one.co_consts, other.co_consts, strict=True):
        if isinstance(left, types.CodeType) and isinstance(right, types.CodeType):
            if not _same_code(left, right):
                return False
        elif type(left) is not type(right) or repr(left) != repr(right):
            return False
    return True


def _difference(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, without their indentation."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
    gone = [line[1:].strip() for line in lines if line.startswith("-")]
    come = [line[1:].strip() for line in lines if line.startswith("+")]
    return "\n".join(gone), "\n".join(come)
