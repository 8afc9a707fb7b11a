"""Entry names: what a kernel file has to define for a task, what it does define, and what to rename."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from pathlib import Path

from opsmith.backends.dsl import parse_source
from opsmith.core.op import folder_name, op_name
from opsmith.errors import BadInput

SUFFIX = "_kernel_impl"
#: What a solution of a problem calls its class, and one of the public form for ranks its function.
SOLUTION_CLASS, SOLUTION_FUNCTION = "ModelNew", "solution"
#: So many names of a file are put into a message.
MOST_NAMES = 5
#: Calls after which nobody can tell from its syntax what a file defines.
_DYNAMIC = frozenset({"exec", "globals", "setattr", "vars"})


def wanted_names(op: str) -> tuple[str, str]:
    """What a file may call its kernel for an overload, best first: ``relu__default_kernel_impl``."""
    return folder_name(op) + SUFFIX, op.rpartition(".")[0] + SUFFIX


def bound_names(tree: ast.Module) -> set[str]:
    """Every name that some statement of a file defines, assigns or imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name for alias in node.names)
    return names


def functions_of(tree: ast.Module) -> tuple[str, ...]:
    """The functions and classes that stand at the top of a file, in its order; ``if`` and ``try`` are looked into."""
    found: dict[str, None] = {}
    todo: list[ast.AST] = [tree]
    while todo:
        for node in ast.iter_child_nodes(todo.pop()):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found[node.name] = None
            elif isinstance(node, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
                todo.append(node)
    return tuple(found)


def may_define_more(tree: ast.Module) -> bool:
    """Whether a file may define names that its syntax does not show.

    ``import *``, ``globals()``, ``exec``, ``__dict__``, a module's ``__getattr__``, or an entry's name in a string.
    """
    return any(
        (isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names))
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _DYNAMIC)
        or (isinstance(node, ast.Attribute) and node.attr == "__dict__")
        or (isinstance(node, ast.FunctionDef) and node.name == "__getattr__")
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(SUFFIX))
        for node in ast.walk(tree)
    )


def tasks_named_in(path: Path) -> tuple[str, ...]:
    """The overloads that the functions of a file are named for, sorted."""
    tree = parse_source(path)
    names = () if tree is None else functions_of(tree)
    found = (op_name(name.removesuffix(SUFFIX)) for name in names if name.endswith(SUFFIX))
    return tuple(sorted({op for op in found if op is not None}))


def entry_for(path: Path, task: str, entry: str | None = None, *, functional: bool = False) -> str | None:
    """The function of a file that is checked as a kernel for ``task``.

    Args:
        path: the file.
        task: an overload, a packet or a pattern.
        entry: the function that the user names.
        functional: the task is an overload that no other one's kernel answers.

    Returns:
        its name where it is not one that a kernel file is expected to have; None where it is, where the file does not
        parse, or where its syntax does not show what it defines.

    Raises:
        BadInput: the file defines nothing for the task; says what it defines and what to rename.
    """
    tree = parse_source(path)
    if tree is None:
        return entry
    defined = bound_names(tree)
    if entry is not None:
        if entry not in defined and not may_define_more(tree):
            raise BadInput(f"{path} defines no {entry}; {_defines(functions_of(tree))}")
        return entry
    packet = task.rpartition(".")[0] if "." in task else task
    op = task if "." in task else f"{task}.default"
    named = {name for name in defined if name.endswith(SUFFIX)}
    answers = named & set(wanted_names(op)) if functional else {name for name in named if _answers(name, packet)}
    if answers or "*" in task:
        return None
    functions = functions_of(tree)
    if packet in functions:
        return packet
    if may_define_more(tree):
        return None
    raise BadInput(missing_kernel(str(path), op, functions))


def check_solution(path: Path, *, on_ranks: bool = False) -> None:
    """Look whether a file defines the class that answers a module problem; ``on_ranks`` a function does as well.

    Raises:
        BadInput: it does not; says what it defines.
    """
    tree = parse_source(path)
    wanted = {SOLUTION_CLASS, SOLUTION_FUNCTION} if on_ranks else {SOLUTION_CLASS}
    if tree is None or not wanted.isdisjoint(bound_names(tree)) or may_define_more(tree):
        return
    functions = functions_of(tree)
    renamed = f": rename {functions[0]} to {SOLUTION_CLASS}" if len(functions) == 1 else ""
    raise BadInput(f"{path} defines no {SOLUTION_CLASS}, which a module problem needs; {_defines(functions)}{renamed}")


def _answers(name: str, packet: str) -> bool:
    """Whether a function is named for some overload of a packet, or for its functional one."""
    stem = name.removesuffix(SUFFIX)
    of = (op_name(stem) or f"{stem}.").rpartition(".")[0]
    return of.rstrip("_") == packet.rstrip("_")


def missing_kernel(file: str, op: str, functions: Sequence[str]) -> str:
    """What a file lacks for an overload, what it defines, and what to do."""
    wanted = wanted_names(op)[0]
    found = _nearest(op.rpartition(".")[0], functions)
    said = f"{file} defines no {wanted}, which {op} needs; {_defines(functions)}"
    if SOLUTION_CLASS in functions:
        return f"{said}: {SOLUTION_CLASS} answers a module problem, --task PROBLEM.py; for {op} define {wanted}"
    of_others = sorted({op_name(name.removesuffix(SUFFIX)) or "" for name in functions if name.endswith(SUFFIX)} - {""})
    if of_others:
        return f"{said}: was --task {' or '.join(of_others)} meant?"
    if found is not None:
        return f"{said}: rename {found} to {wanted}, or pass --entry {found}"
    return f"{said}; write one (`opsmith scaffold DIR --ops {op}` has the signature), or name yours with --entry NAME"


def missing_function(file: str, function: str, name: str, functions: Sequence[str]) -> str:
    """What a file of a kernel directory lacks, what it defines, and what to rename."""
    said = f"{file} defines no {function}; {_defines(functions)}"
    found = _nearest((op_name(name) or f"{name}.").rpartition(".")[0], functions)
    return said if found is None else f"{said}: rename {found} to {function}"


def _defines(functions: Sequence[str]) -> str:
    if not functions:
        return "it defines no function"
    more = len(functions) - MOST_NAMES
    return f"it defines {', '.join(functions[:MOST_NAMES])}" + (f" and {more} more" if more > 0 else "")


def _nearest(packet: str, functions: Sequence[str]) -> str | None:
    """The function that was probably meant for a packet."""
    mentioning = [name for name in functions if packet.strip("_") in name]
    close = difflib.get_close_matches(packet, functions, n=1, cutoff=0.5)
    only = functions if len(functions) == 1 else ()
    return next((name for name in (*mentioning, *close, *only) if name != SOLUTION_CLASS), None)
