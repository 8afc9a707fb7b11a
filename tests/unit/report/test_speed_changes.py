"""Changes of speed between runs: matched case by case, with intervals, and side by side over many runs."""

from __future__ import annotations

import csv
import io
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from tests.report_runs import planned, planned_module, timing, verdict, write_run

from opsmith.cli.compare import compare as compare_command
from opsmith.core.timing import Timing
from opsmith.core.verdict import Status, Verdict
from opsmith.errors import BadInput
from opsmith.report.compare import compare
from opsmith.report.compare_tables import print_runs
from opsmith.report.outcome import Direction
from opsmith.report.results import Results
from opsmith.report.run_table import has_changed, run_table, write_table
from opsmith.report.speed_changes import ChangedSpeed, changed_speeds, ratio_interval

TASKS = ("L1/1_One", "L1/2_Two", "L2/1_Three")


def run(path: Path, speedups: Sequence[float], *, tasks: Sequence[str] = TASKS) -> Results:
    """A run of module problems with these speedups; 0 stands for a wrong value."""
    verdicts = [
        verdict(task, timings=(timing(value),))
        if value
        else verdict(task, status=Status.WRONG_VALUE, detail="3 of 4\nelements are off")
        for task, value in zip(tasks, speedups, strict=True)
    ]
    return Results.read(write_run(path, [planned_module(task) for task in tasks], verdicts))


def change(path: Path, before: Sequence[Timing], after: Sequence[Timing]) -> ChangedSpeed | None:
    """What changed of an op whose cases have these timings in two runs."""

    def of(name: str, timings: Sequence[Timing]) -> Results:
        verdicts: list[Verdict] = [verdict(number=n, timings=(each,)) for n, each in enumerate(timings)]
        return Results.read(write_run(path / name, [planned(cases=len(timings))], verdicts))

    return next(iter(changed_speeds(of("before", before), of("after", after))), None)


def test_ratio_of_one_case_has_the_interval_of_both() -> None:
    """Distances to the ends add up in quadrature: 2 % and 2 % make 2.8 %."""
    found = ratio_interval([(timing(1.0, low=1 / 1.02, high=1.02), timing(2.0, low=2 / 1.02, high=2.04))])
    half = math.exp(math.sqrt(2) * math.log(1.02))
    assert (2.0, 2.0 / half, 2.0 * half) == pytest.approx(found)


def test_ends_of_the_interval_come_from_the_right_sides() -> None:
    """The ratio is least where the later speedup is low and the earlier one high."""
    found = ratio_interval([(timing(1.0, low=1.0, high=1.5), timing(1.0, low=1.0, high=1.0))])
    assert (1.0, 1 / 1.5, 1.0) == pytest.approx(found)


def test_interval_narrows_with_the_cases() -> None:
    """Four independent cases halve it."""
    pair = (timing(1.0, low=0.9, high=1 / 0.9), timing(1.1, low=1.1 * 0.9, high=1.1 / 0.9))
    one, four = ratio_interval([pair]), ratio_interval([pair] * 4)
    assert math.log(one.high / one.low) / 2 == pytest.approx(math.log(four.high / four.low))


def test_interval_covers_the_truth_as_often_as_those_of_the_cases() -> None:
    """Normal log speedups with intervals of 99 % each: so are the ratios'."""
    rng = random.Random(0)
    covered = 0
    for _ in range(2_000):
        pairs = []
        for _ in range(3):
            logs = [rng.gauss(0.0, 0.02), rng.gauss(math.log(1.3), 0.05)]
            spreads = [2.576 * 0.02, 2.576 * 0.05]
            old, new = (
                timing(math.exp(log), low=math.exp(log - spread), high=math.exp(log + spread))
                for log, spread in zip(logs, spreads, strict=True)
            )
            pairs.append((old, new))
        _, low, high = ratio_interval(pairs)
        covered += low <= 1.3 <= high
    assert covered / 2_000 == pytest.approx(0.99, abs=0.008)


def test_only_cases_that_both_runs_timed_are_compared(tmp_path: Path) -> None:
    """A further case that happens to be fast is no change of the kernel."""
    found = change(tmp_path, [timing(1.0)], [timing(1.0), timing(50.0)])
    assert found is not None
    assert (1, 1.0, Direction.NEITHER) == (found.cases, found.ratio, found.change)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (timing(1.5), Direction.FASTER),
        (timing(0.6), Direction.SLOWER),
        (timing(1.5, low=0.9, high=2.5), Direction.NEITHER),
        (timing(1.05, low=1.049, high=1.051, noise=0.06), Direction.NEITHER),
    ],
)
def test_change_is_certain_beyond_interval_and_noise(tmp_path: Path, after: Timing, expected: Direction) -> None:
    """Either of them alone may explain a difference."""
    found = change(tmp_path, [timing(1.0, low=0.999, high=1.001)], [after])
    assert found is not None
    assert expected is found.change


def test_times_are_told_beside_speedups(tmp_path: Path) -> None:
    """Microseconds of the kernel itself."""
    found = change(tmp_path, [timing(1.0, candidate_us=8.0)], [timing(1.0, candidate_us=2.0)])
    assert found is not None
    assert (8.0, 2.0) == pytest.approx((found.before_us, found.after_us))


def test_runs_are_compared_by_level(tmp_path: Path) -> None:
    """A level that a run does not ask has no scores there; all comes last."""
    before = run(tmp_path / "a", [1.0, 0, 2.0])
    after = run(tmp_path / "b", [1.0, 3.0], tasks=TASKS[:2])
    levels = compare(before, after).levels
    assert ["L1", "L2", "all"] == list(levels)
    old, new = levels["L1"]
    assert old is not None
    assert new is not None
    assert (1, 2) == (old.solved, new.solved)
    assert levels["L2"][1] is None


@pytest.fixture
def three(tmp_path: Path) -> list[Results]:
    """The first problem stays, the second is solved in the second run, the third gets faster in the third."""
    return [run(tmp_path / name, speeds) for name, speeds in {"a": [1, 0, 2], "b": [1, 3, 2], "c": [1, 3, 4]}.items()]


def test_table_shows_what_differs_in_some_run(three: list[Results]) -> None:
    """By problem, each run with its outcome and its change since the first."""
    comparisons = [compare(three[0], other) for other in three[1:]]
    table = run_table(three, comparisons)
    assert [False, True, True] == [has_changed(table[task]) for task in TASKS]
    assert ("sample: 3 of 4 elements are off", "") == tuple(cell.why for cell in table["L1/2_Two"][:2])
    assert 2.0 == pytest.approx(table["L2/1_Three"][2].changes["K"].ratio)
    stream = io.StringIO()
    print_runs(three, comparisons, Console(file=stream, width=140))
    text = stream.getvalue()
    assert "2 tasks differ" in text
    assert "L1/1_One" not in text
    assert "K 4.00x (2.000 [1.9" in text
    assert "1 of 2" in text
    assert "elements are off" in text
    assert "fast_1.5 K" in text


def test_csv_has_every_task_of_every_run(three: list[Results], tmp_path: Path) -> None:
    """One row a task and run, whether it changed or not; absent figures are empty."""
    file = tmp_path / "table.csv"
    write_table(file, three, [compare(three[0], other) for other in three[1:]])
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [(task, str(each.path)) for task in TASKS for each in three] == [(row["task"], row["run"]) for row in rows]
    assert ("WRONG_VALUE", "", "") == tuple(rows[3][name] for name in ("outcome", "speedup", "ratio"))
    assert ("PASSED", "faster") == (rows[8]["outcome"], rows[8]["change"])
    assert 10.0 == pytest.approx(float(rows[8]["after_us"]))


def test_compare_prints_runs_side_by_side(
    three: list[Results], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line has both tables, and writes the csv where it is told to."""
    compare_command([each.path for each in three], table=tmp_path / "table.csv")
    out = capsys.readouterr().out
    assert out.index("2 tasks differ") < out.index("before")
    assert (tmp_path / "table.csv").exists()
    with pytest.raises(BadInput, match="cannot write the table"):
        compare_command([each.path for each in three], table=tmp_path / "nowhere" / "table.csv")
