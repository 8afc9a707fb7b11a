"""Is a swarm without a key worth more than its members? Evolution of the compiler and the tuner, against each alone.

    python -m benchmarks.generate.evolution --device cuda -o DIR

For each seed three campaigns with the same tasks, values and seconds of the device: ``inductor`` alone, ``tuner`` alone
(which needs ``--references``, and has no kernel without), and both by strategy ``evolve``. A task counts with the
speedup that its kernel has in the campaign's last judging, on values that chose no kernel. One without a kernel, or
with one that is slower, counts 1: there PyTorch's own stays. ``DIR/record.json`` has the geometric means and their
ratios.
What is in DIR already is taken up again, so the command can be repeated where it was cut off.
"""

from __future__ import annotations

import argparse
import datetime as dt
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.run import write_atomically
from opsmith.report.conventions import geometric_mean

TASKS = Path(__file__).with_name("evolved_ops.txt")
PROGRAM = (sys.executable, "-c", "from opsmith.cli.main import main; main()")
SEEDS = (1, 2, 3)


def campaign(out: Path, words: Sequence[str]) -> dict[str, Any]:
    """Run one, or take it up again; its summary."""
    if not (out / "summary.json").is_file():
        resume = ["--resume"] if (out / "journal.sqlite").is_file() else []
        ended = subprocess.run([*PROGRAM, "generate", *words, *resume, "-o", str(out)], check=False)  # noqa: S603 - this program
        if ended.returncode not in (0, 1):  # 1: a judgement took longer than it may, which the record says.
            raise SystemExit(f"the campaign in {out} ended with status {ended.returncode}")
    found: dict[str, Any] = msgspec.json.decode((out / "summary.json").read_bytes())
    return found


def figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Of one campaign: geometric mean, tasks with a kernel, seconds, and each task's speedup."""
    speedups = {}
    for name, task in summary["tasks"].items():
        measured = task["speedup_k"] if task["speedup_k"] is not None else task["speedup_e"]
        speedups[name] = round(measured, 4) if task["accepted"] and measured is not None else None
    return {
        "geomean": round(geometric_mean([max(speedup or 1.0, 1.0) for speedup in speedups.values()]), 4),
        "geomean_of_kernels": _mean([speedup for speedup in speedups.values() if speedup is not None]),
        "solved": summary["accepted"],
        "attempts": summary["by_model"]["all"]["attempts"],
        "device_s": round(summary["spent"]["device_s"], 1),
        "overruns": summary["overruns"],
        "by": {name: task["model"] for name, task in summary["tasks"].items() if task["model"] is not None},
        "speedups": speedups,
    }


def _mean(values: Sequence[float]) -> float | None:
    return round(geometric_mean(values), 4) if values else None


def measure(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The three campaigns of one seed."""
    place, tasks = options.out / f"seed-{seed}", options.tasks
    common = ["--device", options.device, "--suite", options.suite, "--ops", tasks]
    common += [] if options.dtype is None else ["--dtype", options.dtype]
    common += [] if options.suite != "traces" else ["--top-inputs", str(options.top_inputs)]
    common += ["--dsl", "triton", "--timing", "quick", "--seed", str(seed)]
    common += ["--most-judging-s", f"{options.most_judging_s:g}"]
    common += ["--budget", f"device_s={max(options.device_s * (tasks.count(',') + 1), options.most_judging_s):g}"]
    attempts = ["--attempts", str(options.attempts)]
    alone = {"inductor": ["--provider", "inductor", "--strategy", "best-of-n", "--attempts", "1"]}
    if options.references is not None:
        alone["tuner"] = ["--provider", "tuner", "--strategy", "refine", *attempts, "--references", options.references]
    members = {name: figures(campaign(place / name, [*words, *common])) for name, words in alone.items()}
    both = ["--provider", "inductor,tuner", "--strategy", "evolve", *attempts]
    if options.references is not None:
        both += ["--references", options.references]
    evolved = figures(campaign(place / "evolve", [*both, *common]))
    best = max(member["geomean"] for member in members.values())
    return {"seed": seed, "members": members, "evolve": evolved, "ratio": round(evolved["geomean"] / best, 4)}


def main(words: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generate.evolution")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--suite", default="traces")
    parser.add_argument("--top-inputs", type=int, default=1, help="of each op, with traces")
    parser.add_argument("--dtype", help="default: as recorded, with traces")
    parser.add_argument("--tasks", default=TASKS.read_text().strip(), help="with commas; default: the 40 of the record")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--attempts", type=int, default=24, help="of each member at a task")
    parser.add_argument("--device-s", type=float, default=60.0, help="seconds of the device for each task")
    parser.add_argument("--most-judging-s", type=float, default=60.0)
    parser.add_argument("--references", help="kernel directory that the tuner begins with; default: none")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args(words)
    runs = [measure(seed, options) for seed in options.seeds]
    record = {
        "command": ["python", "-m", "benchmarks.generate.evolution", *(sys.argv[1:] if words is None else words)],
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "tasks": options.tasks.count(",") + 1,
        "ratio": round(geometric_mean([run["ratio"] for run in runs]), 4),
        "runs": runs,
    }
    write_atomically(options.out / "record.json", msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    for run in runs:
        alone = ", ".join(f"{name} {member['geomean']:.3f}x" for name, member in run["members"].items())
        print(f"seed {run['seed']}: {alone}, evolve {run['evolve']['geomean']:.3f}x: {run['ratio']:.3f} of the best")
    print(f"{record['tasks']} tasks, {len(runs)} seeds: {record['ratio']:.3f} of the best member (aim: 1.1)")
    return record


if __name__ == "__main__":
    main()
