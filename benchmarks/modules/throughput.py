"""How many prebuilt solutions of module problems a machine judges in a minute, timed, with everything on.

::

    python -m benchmarks.modules.throughput OUT --device cuda --solutions 180 --minutes 8

The solutions are those of ``examples/module_solutions/triton`` and of ``varied/``, copied until there are as many as
asked, each with a text of its own, and one that never returns. OUT gets the folder, the run, which ``--resume``
continues where the time was up, and ``throughput.json``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.modules.verdicts import SOLUTIONS

from opsmith.core.run import RunDirectory
from opsmith.errors import BadInput

TRITON = Path(__file__).parents[2] / "examples" / "module_solutions" / "triton"
_OPSMITH = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"
_FILE = re.compile(r"level_(\d+)_problem_(\d+)_sample_\d+_kernel\.py")
#: How often what is there is counted, and how long an interrupted run may take to end.
POLL_S = 5.0
ENDING_S = 30.0

HANGS = '''"""Hangs: never returns."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, gate, up):
        while True:
            pass
'''


def write_solutions(folder: Path, count: int) -> str:
    """Write ``count`` solutions and one that hangs; the patterns of their problems."""
    files = sorted([*TRITON.glob("level_*.py"), *SOLUTIONS.glob("level_*.py")])
    samples: Counter[tuple[str, str]] = Counter()
    for number, file in zip(range(count), itertools.cycle(files), strict=False):
        _write(folder, file.name, f"{file.read_text()}# {number}\n", samples)
    _write(folder, "level_2_problem_1_sample_0_kernel.py", HANGS, samples)
    return ",".join(f"L{level}/{problem}_*" for level, problem in sorted(samples))


def _write(folder: Path, name: str, text: str, samples: Counter[tuple[str, str]]) -> None:
    match = _FILE.fullmatch(name)
    assert match is not None
    problem = (match[1], match[2])
    (folder / f"level_{match[1]}_problem_{match[2]}_sample_{samples[problem]}_kernel.py").write_text(text)
    samples[problem] += 1


def judged(run: Path) -> tuple[int, int]:
    """Solutions of which every case has a verdict, and those that are timed as well or need no time; none at first."""
    try:
        directory = RunDirectory.open(run)
        plan, verdicts = directory.plan(), list(directory.verdicts())
    except (BadInput, OSError):
        return 0, 0
    asked = {op.op: op.cases for op in plan.ops if op.kernel is not None}
    found = Counter(verdict.op for verdict in verdicts)
    failed = {verdict.op for verdict in verdicts if verdict.counts_against}
    done = {op for op, cases in asked.items() if found[op] >= cases}
    timed = {timed.op for timed in directory.timed_cases()}
    return len(done), len(done & (timed | failed))


def watched(process: subprocess.Popen[bytes], run: Path, until_s: float) -> Iterator[tuple[float, int, int]]:
    """Seconds since the start, judged and timed, until the process ends or its time is up."""
    start = time.monotonic()
    while process.poll() is None and time.monotonic() - start < until_s:
        time.sleep(POLL_S)
        yield time.monotonic() - start, *judged(run)


def rates(counts: list[tuple[float, int, int]]) -> dict[str, Any]:
    """Solutions a minute: over the whole run, and in each minute of it."""
    took_s, done, timed = counts[-1]
    minutes = [
        max((each[1] for each in counts if each[0] <= 60 * (minute + 1)), default=0)
        for minute in range(int(took_s // 60) + 1)
    ]
    return {
        "wall_s": round(took_s, 1),
        "judged": done,
        "judged_and_timed": timed,
        "judged_a_minute": round(done * 60 / took_s, 1),
        "judged_and_timed_a_minute": round(timed * 60 / took_s, 1),
        "judged_in_each_minute": [after - before for before, after in itertools.pairwise([0, *minutes])],
    }


def compiling(run: Path) -> dict[str, float]:
    """Seconds that loading and first calls of the timed solutions took, which is not in their times."""
    cases = list(RunDirectory.open(run).timed_cases()) if (run / "run.json").exists() else []
    return {
        "load_s": round(math.fsum(case.load_s or 0.0 for case in cases), 1),
        "first_calls_s": round(math.fsum(case.first_call_s or 0.0 for case in cases), 1),
    }


def origin(run: Path) -> dict[str, Any]:
    """The command of this script, and the environment that the run has recorded."""
    environment = RunDirectory.open(run).manifest().environment if (run / "run.json").exists() else None
    return {"command": sys.argv, "environment": msgspec.to_builtins(environment)}


def main() -> None:
    """Write the folder, judge it for the time given, and say how fast that was."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", default="full", choices=["full", "small"])
    parser.add_argument("--solutions", type=int, default=180)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--timing", default="quick", choices=["off", "quick", "full"])
    asked = parser.parse_args()
    folder, run = asked.out / "solutions", asked.out / "run"
    shutil.rmtree(asked.out, ignore_errors=True)
    folder.mkdir(parents=True)
    ops = write_solutions(folder, asked.solutions)
    words = ["run", "--suite", "modules", "--backend", str(folder), "--ops", ops, "--device", asked.device]
    words += ["--sizes", asked.sizes, "--policy", "any", "--integrity", "on", "--timing", asked.timing, "-o", str(run)]
    process = subprocess.Popen([sys.executable, "-c", _OPSMITH, *words], stdout=subprocess.DEVNULL)  # noqa: S603 - ourselves
    counts = list(watched(process, run, 60 * asked.minutes))
    found: dict[str, Any] = {"solutions": asked.solutions + 1, **rates(counts)}
    record = asked.out / "throughput.json"
    record.write_text(json.dumps(found, indent=2) + "\n")
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
    found |= {"finished": process.returncode in (0, 1), **compiling(run), **origin(run)}
    record.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
