"""Loading what was written."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def load(source: str, folder: Path) -> Any:
    """A written file as a module."""
    file = folder / "written.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location("written", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
