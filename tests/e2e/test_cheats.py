"""No hack of ``tests/cheats`` gets through, and none of their honest twins is turned away.

By default one hack of each family is judged with one seed; ``OPSMITH_CHEATS_SEEDS=1,2,3`` judges
all of them with each of these seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from tests.cheats_corpus import Hack, Round, Side, quick, read_corpus, rounds

from opsmith.core.run import Summary, TimedCase
from opsmith.core.timing import Timing

pytestmark = [pytest.mark.slow, pytest.mark.corpus, pytest.mark.timeout(1800)]

SEEDS = os.environ.get("OPSMITH_CHEATS_SEEDS")
HACKS = read_corpus() if SEEDS else quick(read_corpus())
OPSMITH = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"


def of_device(device: str) -> list[Hack]:
    """The hacks that are judged on a device; none where there is no such device."""
    if device == "cuda" and not torch.cuda.is_available():
        return []
    return [hack for hack in HACKS if hack.about.device == device]


ROUNDS = {
    f"{device}-{round_.policy}-{number}-seed{seed}": (round_, device, seed)
    for seed in (SEEDS or "1").split(",")
    for device in ("cpu", "cuda")
    for number, round_ in enumerate(rounds(of_device(device)))
}
#: The same of hacks that steal time alone.
TIMED_ROUNDS = {
    f"timed-{device}-{number}": (round_, device, (SEEDS or "1").split(",")[0])
    for device in ("cpu", "cuda")
    for number, round_ in enumerate(rounds([hack for hack in of_device(device) if hack.about.timed_in_full]))
}


#: A hack that steals time alone may be so many times as fast as its twin.
MOST_GAIN = 1.1


def judge(name: str, side: Side, folder: Path, *, is_timed: bool = False) -> tuple[Round, Summary]:
    """Run ``opsmith run`` with every check on; hacks are timed too, because some cheat only then."""
    round_, device, seed = {**ROUNDS, **TIMED_ROUNDS}[name]
    kernels = round_.write(folder / "kernels", side)
    done = subprocess.run(
        [
            *(sys.executable, "-c", OPSMITH, "run", "--suite", "opinfo", "--backend", str(kernels)),
            *("--ops", ",".join(round_.hacks), "--dtype", "f32", "--device", device, "--policy", round_.policy),
            *("--integrity", "on", "--timing", "quick" if side == "hack" or is_timed else "off"),
            *("--seed", seed, "-o", str(folder / "run"), "--json"),
        ],
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr.decode()
    summary = msgspec.json.decode(done.stdout, type=Summary)
    assert set(round_.hacks) == set(summary.per_op)
    return round_, summary


@pytest.mark.parametrize("name", ROUNDS)
def test_no_hack_is_accepted(name: str, tmp_path: Path) -> None:
    """Each is refused, and for a reason that its description names: a lucky refusal is no defence."""
    round_, summary = judge(name, "hack", tmp_path)
    found = round_.statuses(summary)
    passed = {
        hack.name: sorted(found[hack.name])
        for task, hack in round_.hacks.items()
        if (summary.per_op[task].accepted and not hack.about.timed_in_full)
        or not found[hack.name] & set(hack.about.stopped_by)
    }
    assert {} == passed


@pytest.mark.parametrize("name", TIMED_ROUNDS)
def test_no_hack_that_is_timed_in_full_is_faster_than_its_twin(name: str, tmp_path: Path) -> None:
    """Beyond what both intervals say: its results are right, and all of its work is timed."""
    speedups: dict[Side, dict[tuple[str, str], Timing]] = {}
    sides: tuple[Side, Side] = ("hack", "honest")
    for side in sides:
        judge(name, side, tmp_path / side, is_timed=True)
        found = (tmp_path / side / "run" / "timings.jsonl").read_bytes().splitlines()
        cases = [msgspec.json.decode(line, type=TimedCase) for line in found]
        speedups[side] = {(case.case, timing.quantity): timing for case in cases for timing in case.timings}
    assert {
        place: timing.speedup
        for place, timing in speedups["hack"].items()
        if place in speedups["honest"] and timing.low > MOST_GAIN * speedups["honest"][place].high
    } == {}


@pytest.mark.parametrize("name", ROUNDS)
def test_every_honest_twin_is_accepted(name: str, tmp_path: Path) -> None:
    """What tells a hack from its twin is the cheat, not the style."""
    round_, summary = judge(name, "honest", tmp_path)
    found = round_.statuses(summary)
    refused = {
        hack.name: sorted(found[hack.name]) for task, hack in round_.hacks.items() if not summary.per_op[task].accepted
    }
    assert {} == refused
