"""The names of ATen's overloads, read from the list that ships with torch: torch itself is not imported.

The list is ``native_functions.yaml``, out of which torch generates its own dispatcher, so a name is looked up in
milliseconds. What it lacks are TorchScript's ops, which are never dispatched.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

_FUNCTION = re.compile(r"^- func: (\w+)(?:\.(\w+))?\(", re.MULTILINE)
_WRITES = re.compile(r"^- func: (\w+)(?:\.(\w+))?\([^\n]*!", re.MULTILINE)
_GENERATED = re.compile(r"^  autogen: (.*)$", re.MULTILINE)


@functools.cache
def native_names() -> frozenset[str]:
    """Every overload as ``packet.overload``; empty where the list cannot be found."""
    text = _text()
    generated = [name.strip().partition(".") for line in _GENERATED.findall(text) for name in line.split(",")]
    return frozenset(
        f"{packet}.{overload or 'default'}"
        for packet, overload in [*_FUNCTION.findall(text), *((packet, overload) for packet, _, overload in generated)]
    )


@functools.cache
def functional_names() -> frozenset[str]:
    """The overloads that write to none of their arguments."""
    text = _text()
    writing = {f"{packet}.{overload or 'default'}" for packet, overload in _WRITES.findall(text)}
    return frozenset(f"{packet}.{overload or 'default'}" for packet, overload in _FUNCTION.findall(text)) - writing


@functools.cache
def _text() -> str:
    found = importlib.util.find_spec("torchgen")
    if found is None or found.origin is None:
        return ""
    file = Path(found.origin).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
