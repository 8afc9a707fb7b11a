"""Record which entries of the operator suite call which ops, for the torch and the type of device that run this.

``python -m tests.record_called_ops [cpu|cuda]`` enumerates the suite in every dtype, which takes minutes, and merges
what was called into ``src/opsmith/runner/plan/called_ops.json``. Run it once with each torch and device in range.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.run import Options
from opsmith.pipeline import survey
from opsmith.runner.plan.suite_index import SuiteIndex, brought

TABLE = Path(__file__).parents[1] / "src" / "opsmith" / "runner" / "plan" / "called_ops.json"
SUITE = "opinfo"


def called(device: str) -> dict[str, set[str]]:
    """Entry -> overloads that it calls in some dtype."""
    survey(Options(suite=SUITE, backend="aten", device=device, dtypes=tuple(TORCH_NAMES)))
    found: dict[str, set[str]] = {}
    for dtype in TORCH_NAMES:
        for entry, ops in (SuiteIndex(SUITE, torch=torch.__version__, device=device, dtype=dtype).load() or {}).items():
            found.setdefault(entry, set()).update(ops)
    return found


def main(device: str) -> None:
    """Merge what this torch calls on a device into the table."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", folder)
        found = called(device)
    table = brought()
    minor = ".".join(torch.__version__.split(".")[:2])
    table.setdefault(SUITE, {}).setdefault(minor, {})[device] = {
        entry: sorted(ops) for entry, ops in sorted(found.items())
    }
    write(table)


def write(table: object) -> None:
    """Write the table, an entry a line."""
    TABLE.write_text(json.dumps(table, indent=0, sort_keys=True).replace('",\n"', '", "') + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
