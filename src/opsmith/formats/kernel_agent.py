"""Solutions of KernelAgent: files that define ``kernel_function`` for a module problem.

The function takes the inputs of ``Model.forward``, and by name what it needs of the Model: weights (``weight``,
``bias``, ``conv_weight``), and arguments of its constructor (``stride``, ``eps``). ``*args`` gets the inputs and then
every weight. A file that defines ``ModelNew`` too is a solution as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opsmith.core.problems import solution_files
from opsmith.core.syntax_tree import syntax_tree
from opsmith.formats.problem_text import ADAPTER
from opsmith.formats.schema import read_text
from opsmith.formats.sources import names
from opsmith.formats.translated import Translated

ENTRY = "kernel_function"
#: What a folder of one problem calls its kernel.
_FILES = ("final_kernel.py", "kernel.py", "input.py")

_ADAPTER = '''"""Calls kernel_function of {file} with inputs, and by name with weights and constructor arguments."""

import inspect

import torch

from .{module} import kernel_function

NAMES = {names!r}
DEFAULTS = {defaults!r}


class ModelNew(torch.nn.Module):
    def __init__(self, *init):
        super().__init__()
        self._options = {{**DEFAULTS, **dict(zip(NAMES, init))}}
        self._state = {{}}
        self._parameters_of_call = inspect.signature(kernel_function).parameters.values()

    def load_reference_state(self, state):
        self._state = dict(state)

    def forward(self, *inputs):
        left, arguments, named, skipped = list(inputs), [], {{}}, False
        for parameter in self._parameters_of_call:
            if parameter.kind is parameter.VAR_POSITIONAL:
                arguments += [*left, *(tensor for name, tensor in self._state.items() if name.endswith("weight"))]
                left = []
                continue
            found = self._named(parameter.name)
            if found is None and left:
                found = left.pop(0)
            if found is None or parameter.kind is parameter.VAR_KEYWORD:
                skipped = True
            elif skipped or parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = found
            else:
                arguments.append(found)
        return kernel_function(*arguments, **named)

    def _named(self, name):
        wanted = {{"w": "weight", "conv_bias": "bias"}}.get(name, name)
        if name == "add_bias":
            return self._state.get("bias")
        for held, tensor in self._state.items():
            if wanted in (held, held.replace(".", "_"), held.rpartition(".")[2]):
                return tensor
        return None if wanted == "bias" else self._options.get(name)
'''


def solutions(path: Path, problem: Path, task: str) -> list[Translated]:
    """The solutions of a problem in a file or folder that are such functions."""
    files = [file for file in _files(path, task) if _answers(file)]
    known, defaults = _constructor(problem) if files else ([], {})
    return [
        Translated(
            files={
                "kernel.py": read_text(file),
                ADAPTER: _ADAPTER.format(file=file.name, module="kernel", names=known, defaults=defaults),
            },
            file=ADAPTER,
            written_in="kernel.py",
            name=str(file.resolve()),
        )
        for file in files
    ]


def _files(path: Path, task: str) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    yield from solution_files(path, task).values()
    for parent in (path / task, path / task.rpartition("/")[2]):
        found = next((parent / name for name in _FILES if (parent / name).is_file()), None)
        if found is not None:
            yield found
            return


def _answers(file: Path) -> bool:
    if file.suffix != ".py":
        return False
    try:
        defined = names(syntax_tree(read_text(file)))
    except SyntaxError:
        return False
    return ENTRY in defined and "ModelNew" not in defined


def _constructor(problem: Path) -> tuple[list[str], dict[str, Any]]:
    """(arguments of Model's constructor, those with a literal for a default)."""
    try:
        tree = syntax_tree(read_text(problem))
    except SyntaxError:
        return [], {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    arguments = [argument.arg for argument in method.args.args[1:]]
                    defaults = method.args.defaults
                    pairs = zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
                    literals = {name: node.value for name, node in pairs if isinstance(node, ast.Constant)}
                    return arguments, literals
    return [], {}
