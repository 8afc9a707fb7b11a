"""The Triton kernels of ``examples/distributed_triton``, as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples" / "distributed_triton"


def module(folder: str) -> Any:
    """A kernel file of the examples."""
    file = EXAMPLES / folder / f"{folder}_implementation_v1.py"
    spec = importlib.util.spec_from_file_location(folder, file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
