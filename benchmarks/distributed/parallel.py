"""All that is judged of ranks, on this machine's GPUs, in steps under time limits.

::

    python -m benchmarks.distributed.parallel --ranks 2 -o parallel-2
    python -m benchmarks.distributed.parallel --ranks 2 -o parallel-2 --steps own,references --seconds 240
    python -m benchmarks.distributed.parallel --ranks 2 --device cpu -o parallel-cpu --steps references --ops '1_*'

``kernels`` times opsmith's kernels (:mod:`benchmarks.distributed.kernels`), ``own`` judges them on parallel problems
in bfloat16, ``own-f32`` in the other dtypes, and ``collectives`` on the suite ``distributed``. ``references`` judges
torch's own answers to all problems at small sizes, ``large`` at their full ones, ``seeds`` at small ones under another
seed. ``hacks`` judges the dishonest kernels of tests/parallel_kernels for GPUs and ``hacks-of-messages`` all others,
``twins`` the honest ones (those that send messages under ``--policy any``), and ``tests`` runs
tests/gpu/test_parallel.py and tests/gpu/test_distributed.py.

Of each step one line says how long it took and how many cases passed; what did not pass follows by op, with one of the
reasons. A step that reaches its limit is interrupted, and what it has judged counts. ``DIR/record.json`` has the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "tests" / "parallel_kernels"
OPSMITH = (sys.executable, "-c", "from opsmith.cli.main import main; main()")
#: What a step is given to end after it is interrupted.
GRACE_S = 20.0
MOST_REASON_CHARS = 230


class Step(NamedTuple):
    """A command of the measurement.

    Attributes:
        command: what runs; a run of opsmith's gets ``-o``.
        limit_s: when it is interrupted.
        is_run: it leaves a run directory.
        refused: kernels of it that have to be refused, by sample: all that it has.
    """

    command: tuple[str, ...]
    limit_s: float
    is_run: bool = True
    refused: bool = False


def steps(ranks: int, device: str, ops: str) -> dict[str, Step]:
    """All steps by their names, in their order."""
    of_ranks = ("--ranks", str(ranks), "--device", device)
    chosen = ("--ops", ops) if ops else ()

    def run(backend: Path | str, *more: str, suite: str = "parallel") -> tuple[str, ...]:
        return (*OPSMITH, "run", "--suite", suite, "--backend", str(backend), *of_ranks, *more)

    small = ("--sizes", "small", "--trials", "1", *chosen)
    corpus = sorted((KERNELS / "gpu_hacks").glob("*.py")) if device == "cuda" else []
    folder = KERNELS / ("gpu_hacks" if corpus else "hacks")
    found = {
        "kernels": Step(
            (sys.executable, "-m", "benchmarks.distributed.kernels", "--ranks", str(ranks), "--seconds", "110"),
            130,
            is_run=False,
        ),
        "own": Step(run("opsmith", *small, "--dtype", "bf16"), 170),
        "own-f32": Step(run("opsmith", *small, "--dtype", "f32,f16"), 240),
        "collectives": Step(
            run("opsmith", "--dtype", "f32,bf16", *chosen, suite="distributed"),
            60,
        ),
        "references": Step(run("aten", *small, "--isolation", "backend"), 120),
        "hacks": Step(run(folder, "--sizes", "small", "--trials", "1", "--ops", "1_AllReduce"), 80, refused=True),
        "twins": Step(run(KERNELS / "honest", *small, "--policy", "any"), 120),
        "large": Step(run("aten", "--sizes", "full", "--trials", "1", *chosen, "--isolation", "backend"), 240),
        "seeds": Step(run("aten", *small, "--isolation", "backend", "--seed", "2", "--dtype", "f32,bf16"), 120),
        "hacks-of-messages": Step(run(KERNELS / "hacks", *small), 150, refused=True),
        "tests": Step(
            (sys.executable, "-m", "pytest", "-q", "-x", "tests/gpu/test_parallel.py", "tests/gpu/test_distributed.py"),
            300,
            is_run=False,
        ),
    }
    if device == "cpu":
        for name in ("kernels", "own", "own-f32", "collectives", "tests"):
            del found[name]
    return found


def perform(step: Step, folder: Path, limit_s: float) -> dict[str, Any]:
    """Run a step, interrupt it at its limit, and say what it found."""
    folder.mkdir(parents=True, exist_ok=True)
    out = ("-o", str(folder / "run")) if step.is_run or "benchmarks.distributed.kernels" in step.command else ()
    start, reached = time.monotonic(), False
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(  # noqa: S603 - a command of this file's own
            (*step.command, *out), cwd=ROOT, stdout=output, stderr=output, process_group=0
        )
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            reached = True
            _end(process)
    found: dict[str, Any] = {"wall_s": round(time.monotonic() - start, 1), "exit_status": process.returncode}
    found["limit_reached"] = reached
    if step.is_run:
        found |= verdicts_in(folder / "run" / "verdicts.jsonl", refused=step.refused)
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    for name in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, name)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
            return


class _Verdict(msgspec.Struct):
    """What the summary reads of a verdict."""

    op: str
    case: str
    status: str
    detail: str = ""


def verdicts_in(path: Path, *, refused: bool) -> dict[str, Any]:
    """Counts of a run's verdicts, and what is not as it should be: by op its statuses, and one of the reasons."""
    if not path.exists():
        return {"cases": 0, "statuses": {}, "ops": 0, "amiss": {"all": "no verdicts"}}
    verdicts = [msgspec.json.decode(line, type=_Verdict) for line in path.read_bytes().splitlines()]
    by_op: dict[str, list[_Verdict]] = {}
    for verdict in verdicts:
        by_op.setdefault(verdict.op, []).append(verdict)
    amiss = {}
    for op, own in by_op.items():
        bad = [verdict for verdict in own if verdict.status != "PASSED"]
        if refused and all(verdict.status in ("PASSED", "UNSUPPORTED") for verdict in own):
            amiss[op] = "was not refused"
        elif refused:
            amiss[op] = f"refused: {dict(Counter(verdict.status for verdict in bad))}"
        elif bad:
            statuses = dict(Counter(verdict.status for verdict in bad))
            reason = " ".join(bad[0].detail.split())[:MOST_REASON_CHARS]
            amiss[op] = f"{statuses} of {len(own)}; {bad[0].case}: {reason}"
    statuses = dict(Counter(verdict.status for verdict in verdicts))
    return {"cases": len(verdicts), "statuses": statuses, "ops": len(by_op), "amiss": amiss}


def told(name: str, found: dict[str, Any], output: Path, *, is_run: bool) -> Iterable[str]:
    """A step in lines."""
    limit = ", stopped at its limit" if found["limit_reached"] else ""
    if not is_run:
        yield f"== {name}: {found['wall_s']} s, exit status {found['exit_status']}{limit}"
        yield from output.read_text(errors="replace").splitlines()[-100:]
        return
    yield (
        f"== {name}: {found['wall_s']} s, exit status {found['exit_status']}{limit}, "
        f"{found['ops']} ops, {found['cases']} cases: {found['statuses']}"
    )
    if not found["cases"]:
        yield from output.read_text(errors="replace").splitlines()[-15:]
    for op, what in found["amiss"].items():
        yield f"  {op}: {what}"


def main() -> int:
    """Perform the steps, write the record, print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--steps", default="", help="names, comma-separated; all by default")
    parser.add_argument("--ops", default="", help="of these problems only, as for opsmith run")
    parser.add_argument("--seconds", type=float, default=3600, help="end after so many")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    known = steps(arguments.ranks, arguments.device, arguments.ops)
    wanted = arguments.steps.split(",") if arguments.steps else list(known)
    if unknown := set(wanted) - set(known):
        parser.error(f"there is no step {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    started = time.monotonic()
    record: dict[str, Any] = {"ranks": arguments.ranks, "device": arguments.device, "steps": {}}
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        left = arguments.seconds - (time.monotonic() - started)
        if left < GRACE_S:
            sys.stdout.write(f"== {name}: no time left\n")
            continue
        folder = arguments.out.resolve() / name
        found = perform(known[name], folder, min(known[name].limit_s, left))
        record["steps"][name] = found
        (arguments.out / "record.json").write_text(json.dumps(record, indent=1) + "\n")
        sys.stdout.write(
            "".join(f"{line}\n" for line in told(name, found, folder / "output.txt", is_run=known[name].is_run))
        )
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
