"""A problem file as a Python module: the file is imported, or a variant of its code is run in its place."""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
from pathlib import Path
from types import CodeType, ModuleType

import numpy as np
import torch

from opsmith.errors import MissingDependency

#: Packages that problems of whole models import, and the extra of opsmith that brings them.
_EXTRAS = {"timm": "models", "transformers": "models"}

_numbers = itertools.count()


def import_problem(file: Path, code: CodeType | None = None) -> ModuleType:
    """Run a problem file in a namespace of its own.

    Args:
        file: its path.
        code: what is run instead of the file's own.

    Raises:
        MissingDependency: it imports a package that an extra brings.
        Exception: whatever the file raises.
    """
    name = f"_opsmith_problem_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses look their module up there.
    try:
        if code is None:
            spec.loader.exec_module(module)
        else:
            exec(code, vars(module))  # noqa: S102 - the problem file's own, with other numbers
    except ModuleNotFoundError as exc:
        if exc.name not in _EXTRAS:
            raise
        raise MissingDependency(exc.name, extra=_EXTRAS[exc.name]) from exc
    return module


def seed_everything(seed: int) -> None:
    """Seed every generator that a problem file may draw from."""
    random.seed(seed)
    np.random.seed(seed % (1 << 32))  # noqa: NPY002 - problem files use the global generator
    torch.manual_seed(seed)
