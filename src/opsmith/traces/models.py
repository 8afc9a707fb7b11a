"""Models by name: ``timm:NAME``, ``torchvision:NAME``, ``transformers:NAME`` or a Python file.

A file holds either a module problem (``Model``, ``get_inputs()``, ``get_init_inputs()``) or, as
``FILE.py:FUNCTION``, a function that returns a model and its inputs.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch

from opsmith.errors import BadInput, UsageError
from opsmith.traces.subject import Sizes, Source, Subject, in_dtype, unknown_model
from opsmith.traces.transformers_models import TransformersModel
from opsmith.traces.vision_models import TimmModel, TorchvisionModel

_LIBRARIES: dict[str, Callable[[str], Source]] = {
    "timm": TimmModel,
    "torchvision": TorchvisionModel,
    "transformers": TransformersModel,
}

_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<function>\w+))?")


def find_model(name: str) -> Source:
    """Look a model up, without building it.

    Raises:
        MissingDependency: its library is not installed.
        UnknownName: its library has no such model.
        BadInput: the file cannot be read, or holds no model.
    """
    library, _, rest = name.partition(":")
    if library in _LIBRARIES and rest:
        return _LIBRARIES[library](rest)
    if file := _FILE.fullmatch(name):
        return FileModel(Path(file["path"]), file["function"])
    known = ", ".join(f"{library}:NAME" for library in _LIBRARIES)
    raise BadInput(f"{name!r} names no model; give {known}, FILE.py or FILE.py:FUNCTION")


class FileModel:
    """A model of the user's own.

    Args:
        path: the Python file, which is run.
        function: the function that makes the model; without it the file is a module problem.

    Raises:
        BadInput: the file cannot be run, or does not define what it should.
    """

    def __init__(self, path: Path, function: str | None) -> None:
        self._name = f"{path}:{function}" if function else str(path)
        module = _run(path)
        if function is not None and not callable(getattr(module, function, None)):
            raise unknown_model(str(path), function, _functions(module))
        missing = [name for name in ("Model", "get_inputs") if not hasattr(module, name)]
        if function is None and missing:
            raise BadInput(f"{path} defines no {missing[0]}; name a function that makes the model: {path}:FUNCTION")
        self._make = getattr(module, function) if function is not None else _problem(module)

    def build(self, config: Mapping[str, Any], sizes: Sizes, dtype: torch.dtype) -> Subject:
        wanted = {name: value for name, value in msgspec.structs.asdict(sizes).items() if value is not None}
        accepted = inspect.signature(self._make).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
        if unknown := [name for name in (*config, *wanted) if name not in accepted and not takes_any]:
            raise BadInput(f"{self._name} takes no {unknown[0]}; it takes: {', '.join(accepted) or 'nothing'}")
        made = self._make(**{**wanted, **config})
        subject = made if isinstance(made, Subject) else _subject(made, self._name)
        in_dtype(subject.module, dtype)
        return subject


def _functions(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def _run(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except UsageError:
        raise
    except Exception as exc:  # the file is the user's and may raise anything
        raise BadInput(f"{path} cannot be loaded: {type(exc).__name__}: {exc}") from exc
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


def _problem(module: ModuleType) -> Callable[[], tuple[Any, Any]]:
    def make() -> tuple[Any, Any]:
        initial = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
        return module.Model(*initial), tuple(module.get_inputs())

    return make


def _subject(made: Any, name: str) -> Subject:
    """Read what a function returned: a model and its inputs, by place or by name."""
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        raise BadInput(f"{name} returned no pair of a torch.nn.Module and its inputs")
    module, inputs = made
    if isinstance(inputs, Mapping):
        return Subject(module=module, kwargs=inputs)
    return Subject(module=module, args=tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,))
