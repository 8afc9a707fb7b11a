"""Scores of module problems against a file of baseline times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.report_runs import manifest, planned_module, timing, verdict, write_run

from opsmith.cli.report import report
from opsmith.core.run import Selection, Summary
from opsmith.core.verdict import Status
from opsmith.errors import BadInput
from opsmith.report.baseline_scores import scores_against
from opsmith.report.results import Results

TASKS = ("L1/1_One", "L1/2_Two", "L1/2_Two@1", "vision/3_Three", "L1/4_Four")


def entry(mean: float, **more: object) -> dict[str, Any]:
    """What a file has for a problem."""
    return {"mean": mean, "std": 0.0, "min": mean, "max": mean, "num_trials": 100, **more}


@pytest.fixture
def run(tmp_path: Path) -> Results:
    """One is right in 10 us and in 20 us, Two in 50 us and wrong, Three in 100 us, Four was not timed."""
    verdicts = [
        verdict("L1/1_One", timings=(timing(1.0, candidate_us=10.0), timing(1.0, "E", candidate_us=20.0))),
        verdict("L1/2_Two", timings=(timing(1.0, candidate_us=50.0),)),
        verdict("L1/2_Two@1", status=Status.WRONG_VALUE),
        verdict("vision/3_Three", timings=(timing(1.0, candidate_us=100.0),)),
        verdict("L1/4_Four"),
    ]
    options = msgspec.structs.replace(
        manifest().options, suite="modules", selection=Selection(problems="problems", problems_hash="0")
    )
    plan = [planned_module(task) for task in TASKS]
    return Results.read(write_run(tmp_path / "run", plan, verdicts, manifest(options=options)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """One took 40 us (E 60), Two 100, Three 50."""
    content = {
        "level1": {"1_One.py": entry(0.04, quantity="K", E=entry(0.06)), "2_Two.py": entry(0.1), "4_Four.py": None},
        "vision": {"3_Three.py": entry(0.05, hardware="NVIDIA H200")},
        "level9": {"1_Nobody.py": entry(1.0)},
    }
    path = tmp_path / "baseline_time_torch.json"
    path.write_text(json.dumps(content))
    return path


def test_speedups_are_over_the_times_of_the_file(run: Results, file: Path) -> None:
    """A wrong sample, and a problem without a time, stay in the denominator."""
    levels = {scores.level: scores for scores in scores_against(run, file).levels}
    kernel, call = levels["L1"].speeds
    assert ("baseline_time_torch", "K", 2) == (kernel.baseline, kernel.quantity, kernel.timed)
    assert (4 * 2) ** 0.5 == pytest.approx(kernel.geomean)
    assert (1 + 0.5) / 3 == pytest.approx(kernel.fast["1.5"])
    assert ("E", 1) == (call.quantity, call.timed)
    assert 3.0 == pytest.approx(call.geomean)
    assert 0.5 == pytest.approx(levels["vision"].speeds[0].geomean)
    assert run.summary.levels[0].pass_at == levels["L1"].pass_at


def test_what_stands_between_both_is_told(run: Results, file: Path) -> None:
    """Other hardware, and problems that one of them does not have."""
    unknown, hardware = scores_against(run, file).notes
    assert unknown.startswith("1 of 4 problems have no time there")
    assert f"of NVIDIA H200, the run's of {manifest().environment.device_name}" in hardware


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"level7": {"1_One.py": {"mean": 1.0}}}', "times of none of this run's problems"),
        ('{"level1": {"1_One.py": {"median": 1.0}}}', "is no file of baseline times"),
        ("[", "is no file of baseline times"),
        (None, "cannot be read"),
    ],
)
def test_another_file_is_a_mistake_of_the_user(run: Results, tmp_path: Path, text: str | None, complaint: str) -> None:
    """In one line."""
    file = tmp_path / "other.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadInput, match=complaint):
        scores_against(run, file)


@pytest.mark.slow
def test_report_shows_the_scores_against_a_file(run: Results, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Below the run's own; as JSON in their place."""
    report(run.path, html=None, baseline_times=file)
    out = capsys.readouterr().out
    assert out.index("ACCEPTED") < out.index("Against") < out.index("2.83x")
    report(run.path, html=None, baseline_times=file, json_output=True)
    levels = msgspec.json.decode(capsys.readouterr().out, type=Summary).levels
    assert {"baseline_time_torch"} == {speeds.baseline for scores in levels for speeds in scores.speeds}
