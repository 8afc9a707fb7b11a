"""The whole numbers of a problem file that say how large its inputs are, found in its syntax tree.

They stand in ``get_inputs`` and ``get_init_inputs``, in functions that these call, and in assignments at the top of the
file that these read. What ``Model`` reads as well is none of them: a solution has such a number in its own file.
"""

from __future__ import annotations

import ast
import operator
import symtable
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType
from typing import NamedTuple

from opsmith.core.syntax_tree import syntax_tree

#: Larger results of arithmetic in a file are left alone.
_LARGEST = 1 << 48
_INPUTS, _INIT, _MODEL = "get_inputs", "get_init_inputs", "Model"

_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_Place = tuple[int, int]
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class SizeConstant(NamedTuple):
    """A number, or a term of numbers such as ``2048 * 2``.

    Attributes:
        value: what it is in the file.
        place: its line and column.
        inputs_only: whether ``get_inputs`` reads it and ``get_init_inputs`` does not.
    """

    value: int
    place: _Place
    inputs_only: bool


class SizeConstants:
    """Those of one file.

    Attributes:
        constants: in the order of the file.

    Args:
        source: of the file.
        name: of it, for messages and tracebacks.

    Raises:
        SyntaxError: it is no Python.
    """

    def __init__(self, source: str, name: str) -> None:
        self._source, self._name = source, name
        tree = syntax_tree(source, name)
        reads = dict(_reads(tree, symtable.symtable(source, name, "exec")))
        of_model = _reached(_MODEL, reads)
        of_inputs, of_init = (_reached(start, reads) - of_model for start in (_INPUTS, _INIT))
        self.constants = tuple(
            SizeConstant(value, (node.lineno, node.col_offset), not names & of_init)
            for names, part in _parts(tree)
            if names <= of_inputs | of_init
            for node, value in _numbers(part)
        )

    def code(self, values: Mapping[_Place, int]) -> CodeType:
        """The file with other numbers in the places that are named."""
        tree = syntax_tree(self._source, self._name)
        _Replacement(values).visit(tree)
        return compile(tree, self._name, "exec")


class _Replacement(ast.NodeTransformer):
    def __init__(self, values: Mapping[_Place, int]) -> None:
        self._values = values

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, (ast.Constant, ast.BinOp)) and _number(node) is not None:
            value = self._values.get((node.lineno, node.col_offset))
            if value is not None:
                return ast.copy_location(ast.Constant(value), node)
        return self.generic_visit(node)


def _parts(tree: ast.Module) -> Iterator[tuple[set[str], ast.AST]]:
    """Names that the file defines at its top, and the code that makes them; classes left out."""
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield {statement.name}, statement
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            yield _targets(statement), statement.value


def _reads(tree: ast.Module, table: symtable.SymbolTable) -> Iterator[tuple[str, set[str]]]:
    """For each name that the file defines at its top the names at its top that it reads."""
    found: dict[str, set[str]] = {}
    for scope in table.get_children():
        found.setdefault(scope.get_name(), set()).update(_globals(scope))
    for statement in tree.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            names, read = _targets(statement), _loaded(statement)
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names, read = {statement.name}, set().union(*map(_loaded, _evaluated_at_once(statement)))
        else:
            continue
        for name in names:
            found.setdefault(name, set()).update(read)
    yield from found.items()


def _evaluated_at_once(statement: _Definition) -> list[ast.expr]:
    """What a definition reads when it is made: decorators, defaults, bases."""
    if isinstance(statement, ast.ClassDef):
        return [*statement.decorator_list, *statement.bases, *(keyword.value for keyword in statement.keywords)]
    defaults = [*statement.args.defaults, *statement.args.kw_defaults]
    return [*statement.decorator_list, *(default for default in defaults if default is not None)]


def _globals(scope: symtable.SymbolTable) -> set[str]:
    """The names at the top of the file that a scope and those inside it read."""
    own = {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return own.union(*map(_globals, scope.get_children()))


def _loaded(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}


def _targets(statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _reached(start: str, reads: Mapping[str, Iterable[str]]) -> set[str]:
    """``start`` and all that it reads, and that these read."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in reads and name not in found:
            found.add(name)
            waiting += reads[name]
    return found


def _numbers(node: ast.AST) -> Iterator[tuple[ast.Constant | ast.BinOp, int]]:
    """The largest terms of whole numbers in a piece of code."""
    if isinstance(node, (ast.Constant, ast.BinOp)) and (value := _number(node)) is not None:
        yield node, value
        return
    for child in ast.iter_child_nodes(node):
        yield from _numbers(child)


def _number(node: ast.AST) -> int | None:
    """What a term of positive whole numbers comes to; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _number(node.left), _number(node.right)
    if left is None or right is None:
        return None
    value: int | None = None
    if type(node.op) in _ARITHMETIC:
        value = _ARITHMETIC[type(node.op)](left, right) if right or not isinstance(node.op, ast.FloorDiv) else None
    elif isinstance(node.op, ast.Pow) and left <= 1024 and right <= 30:
        value = left**right
    elif isinstance(node.op, ast.LShift) and right <= 48:
        value = left << right
    return value if value is not None and 0 <= value <= _LARGEST else None
