"""The end of both harnesses: what they write beside their lines, and their exit status."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith.core.environment import cpu_name
from opsmith.core.run import write_atomically


def write_record(out: Path, program: str, options: Sequence[object], *, seed: int, found: Mapping[str, Any]) -> int:
    """Write ``run.json`` and ``record.json``, and print the latter; returns the exit status, 1 for a broken promise.

    Args:
        out: the folder of the record.
        program: the module that ran.
        options: what it was told, but for the folder.
        seed: of the faults.
        found: the record.
    """
    run = {
        "command": " ".join(map(str, [f"python -m {program}", *options, "-o FOLDER"])),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "seed": seed,
        "environment": {"cpu": cpu_name(), "cpu_count": len(os.sched_getaffinity(0))},
    }
    for name, content in (("run.json", run), ("record.json", found)):
        write_atomically(out / name, json.dumps(content, indent=2).encode() + b"\n")
    print(json.dumps(found, indent=2))
    return 0 if found["holds"] else 1
