"""How many problems that name no small sizes a machine without a GPU can judge at the sizes that are found for them.

::

    python -m benchmarks.modules.foreign_sizes PROBLEMS OUT [--ops 'L1/*'] [--resume]

PROBLEMS is a folder of module problems, or ``hf:OWNER/NAME@COMMIT``. Each Model is judged as its own solution: a
problem is judged if every case passes, so that it was loaded, made smaller, asked and compared. OUT gets the run and
``record.json`` with a count for each level and what keeps every other problem from being judged.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opsmith.core.problems import level_of

_OPSMITH = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"


def record(
    per_op: Mapping[str, Mapping[str, Any]], void: Mapping[str, str], failed: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """What became of the problems.

    Args:
        per_op: of a run's ``summary.json``.
        void: of the same.
        failed: the run's ``failed_tests.json``.
    """
    reasons: dict[str, str] = {}
    for row in failed:
        reasons.setdefault(row["op_name"], f"{row['error_type']}: {row['error_msg']}")
    judged = {task for task, op in per_op.items() if op["accepted"]}
    reasons |= {task: op["not_asked"] for task, op in per_op.items() if op["not_asked"]}
    others = {task: void.get(task) or reasons[task] for task in {*per_op, *void} - judged}
    levels = Counter(map(level_of, [*judged, *others]))
    of_level = {name: sum(level_of(task) == name for task in judged) for name in levels}
    return {
        "problems": levels.total(),
        "judged": len(judged),
        "void": len(void),
        "levels": {name: {"problems": levels[name], "judged": of_level[name]} for name in sorted(levels)},
        "not_judged": dict(sorted(others.items())),
    }


def main() -> None:
    """Judge, count, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems")
    parser.add_argument("out", type=Path)
    parser.add_argument("--ops", default="L1/*,L2/*,L3/*")
    parser.add_argument("--resume", action="store_true")
    asked = parser.parse_args()
    run = asked.out / "run"
    words = ["run", "--suite", "modules", "--backend", "aten", "--problems", asked.problems, "--ops", asked.ops]
    words += ["--device", "cpu", "--sizes", "small", "--timing", "off", "--seed", "0", "-o", str(run)]
    start = time.monotonic()
    done = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, "-c", _OPSMITH, *words, *(["--resume"] if asked.resume else [])], check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)
    summary = json.loads((run / "summary.json").read_text())
    found = record(summary["per_op"], summary["void"], json.loads((run / "failed_tests.json").read_text()))
    found["took_s"] = round(time.monotonic() - start)
    (asked.out / "record.json").write_text(f"{json.dumps(found, indent=2)}\n")
    print(f"{found['judged']} of {found['problems']} problems are judged, {found['void']} are void")


if __name__ == "__main__":
    main()
