"""The text of module problems and solutions that are made from tasks and functions of other formats."""

from __future__ import annotations

import keyword
import re

from opsmith.errors import BadInput

#: The file of a solution's folder that defines its ModelNew; no file of a stranger's has this name.
ADAPTER = "opsmith_adapter.py"

_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


def checked_stem(name: str, file: object) -> str:
    """A task's name, if it can be a file's.

    Raises:
        BadInput: it cannot.
    """
    if not _NAME.fullmatch(name) or name.startswith("_"):
        raise BadInput(f"{file}: the name {name!r} is none for a file; use letters, digits, dots, dashes, underscores")
    return name


def refused(name: str, reason: str) -> str:
    """The file of a problem that cannot be asked: it stays in every denominator, and loading it says why."""
    return f'"""{name} cannot be asked."""\n\nraise NotImplementedError({reason!r})\n'


def function_adapter(file: str, function: str, *, head: str = "", body: str = "return _function(*inputs)") -> str:
    """A ``ModelNew`` without state that calls a function of another file of its folder.

    Args:
        file: where the function is, relative to the folder.
        function: its name.
        head: more statements before the class.
        body: of ``forward(self, *inputs)``; the function is ``_function`` there.
    """
    module = file.removesuffix(".py").replace("/", ".")
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in (*module.split("."), function)):
        raise BadInput(f"{file}::{function} cannot be imported: rename it to a Python name")
    head = f"from .{module} import {function} as _function\n{head}"
    return class_text(f"Calls {function} of {file}.", head, body)


def class_text(doc: str, head: str, body: str) -> str:
    """A file that defines a ``ModelNew`` without state: statements, then the body of its forward."""
    indented = "\n".join(f"        {line}" if line else "" for line in body.splitlines())
    return f'''"""{doc}"""

import torch

{head}

class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
{indented}
'''
