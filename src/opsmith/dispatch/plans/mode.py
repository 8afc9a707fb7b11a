"""How launch plans are carried out: in C++, in Python or not at all."""

from __future__ import annotations

import enum
import os

from opsmith.errors import BadInput

#: The environment variable that chooses: a value of :class:`LaunchMode`.
VARIABLE = "OPSMITH_LAUNCHER"


class LaunchMode(enum.StrEnum):
    """How plans are carried out."""

    NATIVE = "native"
    PYTHON = "python"
    OFF = "off"


def launch_mode() -> LaunchMode:
    """What the environment says; C++ where it says nothing.

    Raises:
        BadInput: it says something else.
    """
    value = os.environ.get(VARIABLE, LaunchMode.NATIVE)
    try:
        return LaunchMode(value)
    except ValueError as exc:
        raise BadInput(f"{VARIABLE}={value} is none of {', '.join(LaunchMode)}; unset it or give one of these") from exc
