"""How much faster several devices judge and time than one, and whether they say the same.

::

    python -m benchmarks.executors.scaling --backend opsmith --sample 4000 --devices 4 -o scaling-4.json
    python -m benchmarks.executors.scaling --device cpu --backend aten --sample 24 --devices 2 -o scaling-cpu.json

Both runs ask the same inputs of real models, drawn from the shipped traces, under the same seed. The record has the
seconds of each stage, their ratio, and how many timed quantities got the same label. With ``--again`` one device is
asked a second time: what differs there is the clock's own doing. The runs are kept in the folder of ``--runs``, and
those that are finished there are not repeated, so that each can have a command of its own; one that was interrupted
(Ctrl-C, ``timeout -s INT``) goes on, and what its commands took is added up. Each begins with an empty cache: what one
has compiled and measured would save the next one time. The libraries are read beforehand, which on a machine that was
just started would take the first run ten seconds and more. Setting up the clock takes every device the same time,
however many there are: a small sample shows less than a large one. A host that others use changes its speed by a tenth
and more in minutes, and inputs take as much longer: what the reference took in both runs shows whether it did.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import itertools
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.executors.comparison import asked, found, judged_twice

from opsmith.core.dtypes import RECORDED, parse_dtypes
from opsmith.core.run import Options, RunDirectory, Selection
from opsmith.core.timing import Timing
from opsmith.pipeline import Silent, evaluate


class Taken(msgspec.Struct):
    """What a run took.

    Attributes:
        stages_s: seconds of each stage.
        results_s: of each stage that has results, seconds until the first of them was there, each tenth, and the last;
            nothing of a run that several commands were needed for.
        commands: that were.
    """

    stages_s: dict[str, float]
    results_s: dict[str, list[float]]
    commands: int = 1


class Stages(Silent):
    """Progress that notes when each stage began, and when its results came."""

    def __init__(self) -> None:
        self._began: list[tuple[str, float]] = []
        self._results: dict[str, list[float]] = {}

    def advance(self, done: int, note: str = "") -> None:  # noqa: ARG002 - when it came is all that counts.
        name, began = self._began[-1]
        self._results.setdefault(name, []).append(time.monotonic() - began)

    def stage(self, name: str, total: int) -> None:
        self._began.append((name, time.monotonic()))
        sys.stderr.write(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {name} {total or ''}\n")

    def taken(self) -> Taken:
        """So far."""
        until_now = itertools.pairwise([*self._began, ("", time.monotonic())])
        return Taken(
            {name: round(end - start, 1) for (name, start), (_, end) in until_now},
            {name: tenths(times) for name, times in self._results.items()},
        )


def tenths(times: Sequence[float]) -> list[float]:
    """Of ascending times the first, that of each tenth of them, and the last."""
    return [round(times[max(math.ceil(n * len(times) / 10) - 1, 0)], 1) for n in range(11)]


@cache
def read_libraries() -> None:
    """Have torch's libraries, and those that come with it, in the machine's memory."""
    for package in ("torch", "nvidia", "triton"):
        found = importlib.util.find_spec(package)
        for folder in found.submodule_search_locations or () if found else ():
            for library in Path(folder).rglob("*.so*"):
                with library.open("rb") as file:
                    while file.read(1 << 24):
                        pass


def ask(arguments: argparse.Namespace, out: Path, devices: str) -> tuple[RunDirectory, Taken]:
    """One run, and what it took; a finished one that is there already is not repeated, an interrupted one goes on."""
    kept, cache = out.with_suffix(".taken.json"), out.with_suffix(".cache")
    if kept.exists():
        return RunDirectory(out), msgspec.json.decode(kept.read_bytes(), type=Taken)
    parts = sorted(out.parent.glob(f"{out.name}.part-*.json"))
    if not parts or not (out / "run.json").exists():  # There is nothing to go on with, or nobody knows what it took.
        for folder in (out, cache):
            shutil.rmtree(folder, ignore_errors=True)
        while parts:
            parts.pop().unlink()
    os.environ["XDG_CACHE_HOME"] = str(cache)
    default = "f32" if arguments.device == "cpu" else RECORDED
    options = Options(
        suite="traces",
        backend=arguments.backend,
        device=arguments.device,
        dtypes=parse_dtypes(arguments.dtype or default),
        timing=arguments.timing,
        isolation=arguments.isolation,
        selection=Selection(sample=arguments.sample, sample_seed=arguments.seed),
    )
    read_libraries()
    stages = Stages()
    try:
        evaluate(
            options,
            out,
            seed=arguments.seed,
            jobs=None,
            devices=devices,
            command=tuple(sys.argv),
            resume=bool(parts),
            progress=stages,
        )
    finally:
        part = out.with_name(f"{out.name}.part-{len(parts)}.json")
        part.write_bytes(msgspec.json.encode(stages.taken()))
    taken = together([*parts, part])
    kept.write_bytes(msgspec.json.encode(taken))
    return RunDirectory(out), taken


def together(parts: Sequence[Path]) -> Taken:
    """What a run took in all."""
    taken = [msgspec.json.decode(part.read_bytes(), type=Taken) for part in parts]
    if len(taken) == 1:
        return taken[0]
    stages_s: Counter[str] = Counter()
    for each in taken:
        stages_s.update(each.stages_s)
    return Taken({name: round(seconds, 1) for name, seconds in stages_s.items()}, {}, len(taken))


def timings(run: RunDirectory) -> dict[tuple[str, str, str], Timing]:
    """(op, case, quantity) -> what was found of it."""
    return {(timed.op, timed.case, timing.quantity): timing for timed in run.timed_cases() for timing in timed.timings}


def apart(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """By how much the figures of one run differ from those of another one, as a share."""
    from opsmith.evaluation.comparisons.value import MEDIAN_TO_RMS  # At use: runs are judged without torch here.

    logs = [math.log(its / mine) for mine, its in zip(ours, theirs, strict=True)]
    middle = statistics.median(logs)
    spread = MEDIAN_TO_RMS * statistics.median([abs(value - middle) for value in logs])
    return {"median": round(math.expm1(middle), 4), "spread": round(math.expm1(spread), 4)}


def agreement(one: RunDirectory, other: RunDirectory) -> dict[str, Any]:
    """How many quantities that both have timed got the same label, and what became of the others."""
    ours, theirs = timings(one), timings(other)
    both = sorted(ours.keys() & theirs.keys())
    pairs = Counter((str(ours[key].label), str(theirs[key].label)) for key in both)
    same = sum(count for (mine, its), count in pairs.items() if mine == its)
    keys = {quantity: [key for key in both if key[2] == quantity] for quantity in sorted({key[2] for key in both})}
    by_quantity = {
        quantity: round(sum(ours[key].label == theirs[key].label for key in of_it) / len(of_it), 4)
        for quantity, of_it in keys.items()
    }

    def compared(figure: Callable[[Timing], float]) -> dict[str, dict[str, float]]:
        return {
            quantity: apart([figure(ours[key]) for key in of_it], [figure(theirs[key]) for key in of_it])
            for quantity, of_it in keys.items()
        }

    return {
        "timed by both": len(both),
        "timed by one": len(ours.keys() ^ theirs.keys()),
        "same label": round(same / len(both), 4) if both else None,
        "same label, by quantity": by_quantity,
        "speedups of the second over those of the first": compared(lambda timing: timing.speedup),
        # The same calls of eager: what they differ by is the machine's doing.
        "times of the second's reference over those of the first's": compared(lambda timing: timing.reference_us),
        "FASTER in one and SLOWER in the other": sum(
            count for pair, count in pairs.items() if set(pair) == {"FASTER", "SLOWER"}
        ),
        "labels": {f"{mine}, {its}": count for (mine, its), count in pairs.most_common()},
        "other verdicts": (found(one) - found(other)).total(),
    }


def described(run: RunDirectory, taken: Taken) -> dict[str, Any]:
    """A run for the record."""
    manifest = run.manifest()
    return {
        "wall_s": manifest.wall_s,
        **msgspec.to_builtins(taken),
        "devices": [msgspec.to_builtins(device) | {"clock": None} for device in manifest.devices],
        "noise": [device.clock.noise for device in manifest.devices if device.clock is not None],
        "verdicts": sum(1 for _ in run.verdicts()),
        "judged_twice": judged_twice(run),
        "timed_on": dict(Counter(str(timed.device) for timed in run.timed_cases())),
        "timed_so_often": dict(Counter(str(timing.processes) for timing in timings(run).values())),
    }


def main() -> int:
    """Run on one and on several, print and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="opsmith")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default="")
    parser.add_argument("--devices", default="all", help="the several: all, or how many")
    parser.add_argument("--sample", type=int, default=4000, help="inputs drawn from the traces")
    parser.add_argument("--timing", default="quick", choices=["off", "quick", "full"])
    parser.add_argument("--isolation", default="kernel", choices=["kernel", "backend"])
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--again", action="store_true", help="ask one device a second time")
    parser.add_argument("--runs", type=Path, help="keep the runs here")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.runs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        one, one_taken = ask(arguments, folder / "one", "")
        several, several_taken = ask(arguments, folder / "several", arguments.devices)
        work = ("judging", "timing")
        one_s, several_s = one_taken.stages_s, several_taken.stages_s
        record = {
            "asked": asked(arguments),
            "utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "environment": msgspec.to_builtins(one.manifest().environment),
            "one": described(one, one_taken),
            "several": described(several, several_taken),
            "times as fast": {
                "judging and timing": round(sum(one_s[s] for s in work) / sum(several_s[s] for s in work), 2),
                "all": round(sum(one_s.values()) / sum(several_s.values()), 2),
                **{stage: round(one_s[stage] / several_s[stage], 2) for stage in work if several_s[stage]},
            },
            "one and several": agreement(one, several),
        }
        if arguments.again:
            again, again_taken = ask(arguments, folder / "again", "")
            record |= {"again": described(again, again_taken), "one and again": agreement(one, again)}
    arguments.out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps({key: record[key] for key in ("times as fast", "one and several")}, indent=2))
    return int(bool(record["several"]["judged_twice"]))


if __name__ == "__main__":
    sys.exit(main())
