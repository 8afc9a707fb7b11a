"""Defaults of a project: ``[tool.opsmith]`` in the ``pyproject.toml`` of the working directory or of one above it.

::

    [tool.opsmith]
    device = "cuda"
    dtype = "bf16"

    [tool.opsmith.run]
    backend = "kernels"
    fail-on = "slower"

What stands in the table itself holds for every verb that has the option; what the command line says comes first.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from opsmith.errors import BadInput

FILE = "pyproject.toml"


def read_settings(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The nearest file from a folder upwards that has the table, and the table.

    Raises:
        BadInput: it cannot be read.
    """
    for above in (folder, *folder.parents):
        path = above / FILE
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("opsmith")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
            raise BadInput(f"{path} cannot be read: {exc}") from exc
        if isinstance(table, dict):
            return path, table
    return None


def defaults(settings: tuple[Path, Mapping[str, Any]], verb: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """What the settings say of the parameters of a verb: name of the parameter -> value.

    Args:
        settings: as :func:`read_settings` finds them.
        verb: for example ``run``.
        parameters: option without its dashes -> name of the parameter.

    Raises:
        BadInput: the verb has no such option, or a value is none that an option can have.
    """
    path, table = settings
    own = table.get(verb, {})
    if not isinstance(own, dict):
        raise BadInput(f"{path}: {verb} has to be a table, [tool.opsmith.{verb}]")
    general = {name: value for name, value in table.items() if not isinstance(value, dict)}
    unknown = [name for name in own if _dashed(name) not in parameters]
    if unknown:
        raise BadInput(f"{path}: opsmith {verb} has no option {_dashed(unknown[0])}{_near(unknown[0], parameters)}")
    given = {**general, **own}
    return {
        parameters[_dashed(name)]: _value(path, name, value)
        for name, value in given.items()
        if _dashed(name) in parameters
    }


def _value(path: Path, name: str, value: object) -> Any:
    if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
        return ",".join(map(str, value))
    if isinstance(value, str | int | float):
        return value
    raise BadInput(f"{path}: {name} has to be a text, a number, true, false or a list of them")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _near(name: str, parameters: Collection[str]) -> str:
    close = difflib.get_close_matches(_dashed(name), parameters, n=1)
    return f"; did you mean {close[0]}?" if close else ""
