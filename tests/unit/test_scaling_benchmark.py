"""What the benchmark of several devices says of two runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from benchmarks.executors.scaling import Taken, agreement, tenths, together
from tests.report_runs import planned, timed_case, timing, verdict, write_run

from opsmith.core.run import RunDirectory
from opsmith.core.timing import Timing

OP = "relu.default"


def run_of(path: Path, timings: list[Timing]) -> RunDirectory:
    """A run with a timed case for each of these."""
    judged = [verdict(OP, number) for number in range(len(timings))]
    timed = [timed_case(of, timings=(found,)) for of, found in zip(judged, timings, strict=True)]
    return write_run(path, [planned(OP, len(timings))], judged, timed=timed)


def test_a_slower_host_is_told_from_other_speedups(tmp_path: Path) -> None:
    """Both sides of three calls take 1.2 times as long, and one of them has another label by itself."""
    one = run_of(tmp_path / "one", [timing(speedup, "E") for speedup in (1.0, 2.0, 0.5)])
    other = run_of(tmp_path / "other", [timing(speedup, "E", candidate_us=12.0) for speedup in (1.0, 2.0, 1.0)])
    found = agreement(one, other)
    assert found["same label, by quantity"] == {"E": pytest.approx(2 / 3, abs=1e-4)}
    assert found["speedups of the second over those of the first"]["E"]["median"] == 0
    assert found["times of the second's reference over those of the first's"]["E"]["median"] == pytest.approx(0.2)


def test_quantities_of_one_run_only_are_counted_apart(tmp_path: Path) -> None:
    """They have nothing to agree with."""
    one = run_of(tmp_path / "one", [timing(1.0), timing(2.0)])
    other = run_of(tmp_path / "other", [timing(0.5)])
    found = agreement(one, other)
    assert (1, 1) == (found["timed by both"], found["timed by one"])
    assert {"SAME, SLOWER": 1} == found["labels"]


def test_the_commands_of_an_interrupted_run_are_added_up(tmp_path: Path) -> None:
    """And when its results came is not known: it began anew in between."""
    parts = [Taken({"judging": 5.0, "timing": 2.5}, {"judging": [0.1]}), Taken({"timing": 4.0}, {})]
    paths = [tmp_path / f"{number}.json" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(msgspec.json.encode(part))
    assert together(paths[:1]) == parts[0]
    assert together(paths) == Taken({"judging": 5.0, "timing": 6.5}, {}, 2)


def test_tenths_are_of_all_results() -> None:
    """The first, each tenth and the last; fewer than ten results stand for several."""
    assert tenths([float(n) for n in range(1, 21)]) == [1.0, *map(float, range(2, 21, 2))]
    assert tenths([1.0, 2.0]) == [1.0] * 6 + [2.0] * 5
