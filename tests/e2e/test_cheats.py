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
from opsmith.core.verdict import Status

pytestmark = [pytest.mark.slow, pytest.mark.corpus, pytest.mark.timeout(1800)]

SEEDS = os.environ.get("OPSMITH_CHEATS_SEEDS")
HACKS = read_corpus() if SEEDS else quick(read_corpus())
OPSMITH = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"


def of_device(device: str) -> list[Hack]:
    """The hacks that are judged on a device; none where there is no such device."""
    if device == "cuda" and not torch.cuda.is_available():
        return []
    return [hack for hack in HACKS if hack.about.device == device]


def rounds_of(*, timed_in_full: bool) -> dict[str, tuple[Round, str, str]]:
    """Rounds by name, each with its device and its seed: of hacks that steal time alone, or of all others."""
    return {
        f"{device}-{round_.policy}-{number}-seed{seed}": (round_, device, seed)
        for seed in (SEEDS or "1").split(",")
        for device in ("cpu", "cuda")
        for number, round_ in enumerate(
            rounds(hack for hack in of_device(device) if hack.about.timed_in_full is timed_in_full)
        )
    }


ROUNDS = rounds_of(timed_in_full=False)
TIMED_IN_FULL = rounds_of(timed_in_full=True)


def times_of(run: Path) -> dict[tuple[str, str, str], Timing]:
    """What was timed, by op, case and quantity."""
    lines = (run / "timings.jsonl").read_bytes().splitlines()
    cases = [msgspec.json.decode(line, type=TimedCase) for line in lines]
    return {(case.op, case.case, timing.quantity): timing for case in cases for timing in case.timings}


#: How much faster than its twin a hack may be that is accepted.
MOST_GAINED = 1.1


def judge(of_name: tuple[Round, str, str], side: Side, folder: Path, *, timed: bool = False) -> tuple[Round, Summary]:
    """Run ``opsmith run`` with every check on; hacks are timed too, because some cheat only then."""
    round_, device, seed = of_name
    kernels = round_.write(folder / "kernels", side)
    done = subprocess.run(
        [
            *(sys.executable, "-c", OPSMITH, "run", "--suite", "opinfo", "--backend", str(kernels)),
            *("--ops", ",".join(round_.hacks), "--dtype", round_.dtype, "--device", device, "--policy", round_.policy),
            *("--integrity", "on", "--timing", "quick" if timed or side == "hack" else "off"),
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
    round_, summary = judge(ROUNDS[name], "hack", tmp_path)
    found = round_.statuses(summary)
    passed = {
        hack.name: sorted(found[hack.name])
        for task, hack in round_.hacks.items()
        if summary.per_op[task].accepted or not found[hack.name] & set(hack.about.stopped_by)
    }
    assert {} == passed
    accused = [
        hack.name
        for hack in round_.hacks.values()
        if Status.DISHONEST in found[hack.name] and {Status.POLICY} == set(hack.about.stopped_by)
    ]
    assert [] == accused, "what composes in the open is no fraud"


@pytest.mark.parametrize("name", TIMED_IN_FULL)
def test_what_is_accepted_gains_nothing(name: str, tmp_path: Path) -> None:
    """A hack that is never wrong is no faster than its twin, beyond what both intervals say, or it is refused."""
    times = {}
    summaries = {}
    sides: tuple[Side, Side] = ("hack", "honest")
    for side in sides:
        round_, summaries[side] = judge(TIMED_IN_FULL[name], side, tmp_path / side, timed=True)
        times[side] = times_of(tmp_path / side / "run")
    found = round_.statuses(summaries["hack"])
    for task, hack in round_.hacks.items():
        assert summaries["honest"].per_op[task].accepted, hack.name
        assert found[hack.name] & set(hack.about.stopped_by), hack.name
        if not summaries["hack"].per_op[task].accepted:
            continue
        gains = {
            place: timing.speedup
            for place, timing in times["hack"].items()
            if place[0] == task and place in times["honest"] and timing.low > MOST_GAINED * times["honest"][place].high
        }
        assert {} == gains, hack.name


@pytest.mark.parametrize("name", ROUNDS)
def test_every_honest_twin_is_accepted(name: str, tmp_path: Path) -> None:
    """What tells a hack from its twin is the cheat, not the style."""
    round_, summary = judge(ROUNDS[name], "honest", tmp_path)
    found = round_.statuses(summary)
    refused = {
        hack.name: sorted(found[hack.name]) for task, hack in round_.hacks.items() if not summary.per_op[task].accepted
    }
    assert {} == refused
