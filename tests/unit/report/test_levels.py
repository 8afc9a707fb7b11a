"""Scores of module problems: by level, over all problems asked, each counted once."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.report_runs import manifest, planned, planned_module, timing, verdict, write_run

from opsmith.core.run import LevelScores, Options, PlannedOp, RunDirectory, RunPlan, Selection
from opsmith.core.verdict import Status, Verdict
from opsmith.report.html import render
from opsmith.report.levels import level_scores, pass_at_k
from opsmith.report.publish import publish
from opsmith.report.results import Results
from opsmith.report.scores import summarise
from opsmith.report.tables import print_results

#: L1: two samples right at 4 and 1, one right at 0.5 and one wrong, one unanswered. L2: one right, not timed.
PLAN = [
    *map(planned_module, ("L1/2_Two", "L1/2_Two@1", "L1/10_Ten", "L1/10_Ten@1")),
    planned_module("L1/3_Three", answered=False),
    *map(planned_module, ("L2/1_One", "L2/1_One@1")),
]
VERDICTS = [
    verdict("L1/2_Two", timings=(timing(4.0, candidate_us=100.0), timing(3.0, "E"))),
    verdict("L1/2_Two@1", timings=(timing(1.0),)),
    verdict("L1/10_Ten", timings=(timing(0.5),)),
    verdict("L1/10_Ten@1", status=Status.LOAD_FAILED),
    verdict("L2/1_One"),
    verdict("L2/1_One@1"),
]


def levels(plan: Sequence[PlannedOp] = PLAN, verdicts: Sequence[Verdict] = VERDICTS) -> dict[str, LevelScores]:
    """The scores of a run, by level."""
    found = summarise(manifest(), RunPlan(ops=tuple(plan)), verdicts).levels
    return {scores.level: scores for scores in found}


def module_run(path: Path, plan: Sequence[PlannedOp], verdicts: Sequence[Verdict]) -> RunDirectory:
    """A run of module problems, on disk."""
    options = Options(
        suite="modules",
        backend="./solutions",
        device="cpu",
        dtypes=("f32",),
        selection=Selection(problems="problems", problems_hash="0"),
    )
    return write_run(path, plan, verdicts, manifest(options=options))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """The run of the verdicts above."""
    return module_run(tmp_path / "run", PLAN, VERDICTS)


@pytest.mark.parametrize(("samples", "correct"), [(1, 0), (1, 1), (5, 0), (5, 2), (6, 5)])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(samples: int, correct: int) -> None:
    """Counted one by one, which is what the formula says without counting."""
    for k in range(1, samples + 1):
        subsets = list(itertools.combinations([True] * correct + [False] * (samples - correct), k))
        assert sum(map(any, subsets)) / len(subsets) == pytest.approx(pass_at_k(samples, correct, k))


def test_a_run_of_ops_has_no_levels() -> None:
    """Its scores are those of ops."""
    assert {} == levels([planned("relu.default", 1)], [verdict()])
    assert () == level_scores({}, "eager")


def test_levels_count_problems_and_samples() -> None:
    """What nobody answers stays in the denominator."""
    assert ["L1", "L2", "all"] == list(levels())
    first = levels()["L1"]
    assert (3, 2, 4, 3, 2) == (first.problems, first.answered, first.samples, first.correct, first.solved)
    assert {"1": (1 + 0.5) / 3, "2": 2 / 3} == pytest.approx(first.pass_at)
    assert 4 == levels()["all"].problems


def test_pass_at_k_needs_k_samples_of_every_answered_problem() -> None:
    """A k that some problem has too few samples for would mix what is not comparable."""
    assert {"1"} == levels([*PLAN, planned_module("L3/1_Alone")], [*VERDICTS, verdict("L3/1_Alone")])[
        "all"
    ].pass_at.keys()


def test_fast_p_counts_each_problem_once() -> None:
    """Samples are averaged within their problem; a threshold has to be exceeded."""
    kernel, call = levels()["L1"].speeds
    assert ("K", "eager") == (kernel.quantity, kernel.baseline)
    shares = {"0": 1.5, "0.5": 1.0, "0.8": 1.0, "1": 0.5, "1.5": 0.5, "2": 0.5}
    assert {p: share / 3 for p, share in shares.items()} == pytest.approx(kernel.fast)
    assert ("E", 1) == (call.quantity, call.timed)
    assert () == levels()["L2"].speeds


def test_means_are_told_raw_and_floored() -> None:
    """Raw over what was timed; floored over all problems, a fallback counted as 1."""
    kernel = levels()["L1"].speeds[0]
    assert 2 == kernel.timed
    assert (2 * 0.5) ** 0.5 == pytest.approx(kernel.geomean)
    assert 1.25 == pytest.approx(kernel.median)
    assert 2 ** (1 / 3) == pytest.approx(kernel.geomean_floored_at_one)
    assert 1.0 == kernel.median_floored_at_one


def test_nothing_right_has_no_mean_but_a_floored_one() -> None:
    """Absence is no number."""
    wrong = verdict("L1/2_Two", status=Status.WRONG_VALUE, timings=(timing(9.0),))
    (speeds,) = levels(PLAN[:1], [wrong])["L1"].speeds
    assert (0, None, None, 1.0) == (speeds.timed, speeds.geomean, speeds.median, speeds.geomean_floored_at_one)
    assert {0.0} == set(speeds.fast.values())


def test_terminal_and_page_show_the_levels(run: RunDirectory) -> None:
    """The same figures in both."""
    results = Results.read(run)
    stream = io.StringIO()
    print_results(results, Console(file=stream, width=80))
    text = stream.getvalue()
    page = render(results)
    for shown in ("pass@2", "fast_1.5", "floored median", "0.667", "1.26x"):
        assert shown in text
        assert shown in page


def test_page_of_ops_has_no_section_of_levels(tmp_path: Path) -> None:
    """An empty table would say that something is missing."""
    results = Results.read(write_run(tmp_path / "run", [planned(cases=1)], [verdict()]))
    assert "Problems by level" not in render(results)


def exported(run: RunDirectory, name: str) -> dict[str, Any]:
    """A file of the published run."""
    publish(run)
    found: dict[str, Any] = json.loads((run.path / name).read_text())
    return found


def test_exported_samples_have_the_public_fields(tmp_path: Path) -> None:
    """Of one level a problem is called by its number; one that nobody answers has no sample."""
    found = exported(module_run(tmp_path / "run", PLAN[:5], VERDICTS[:4]), "eval_results.json")
    assert ["2", "3", "10"] == list(found)
    assert [] == found["3"]
    first, second = found["2"]
    assert ["sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"] == list(first)
    assert (0, True, True) == (first["sample_id"], first["compiled"], first["correctness"])
    assert 0.1 == pytest.approx(first["runtime"])
    assert 1 == second["sample_id"]
    failed = found["10"][1]
    assert (False, False, -1.0, {}) == tuple(
        failed[name] for name in ("compiled", "correctness", "runtime", "runtime_stats")
    )


def test_exported_names_of_several_levels_are_whole(run: RunDirectory) -> None:
    """Two levels have a problem 1 each."""
    assert ["L1/2_Two", "L1/3_Three", "L1/10_Ten", "L2/1_One"] == list(exported(run, "eval_results.json"))


def test_exported_pass_at_k_agrees_with_the_summary(run: RunDirectory) -> None:
    """Averages are over all problems, those without samples included."""
    found = exported(run, "pass_at_k_results.json")
    expected = run.summary().levels[-1].pass_at
    assert {f"avg_pass@{k}": value for k, value in expected.items()} == found["averages"]
    assert {"total_samples": 2, "correct_samples": 1, "pass@1": 0.5, "pass@2": 1.0} == found["problems"]["L1/10_Ten"]
    assert {"total_samples": 0, "correct_samples": 0} == found["problems"]["L1/3_Three"]
    assert (4, 3) == (found["metadata"]["total_problems"], found["metadata"]["pass@2_count"])


def test_a_run_of_ops_has_no_module_exports(tmp_path: Path) -> None:
    """They would be empty."""
    run = write_run(tmp_path / "run", [planned(cases=1)], [verdict()])
    publish(run)
    assert not (run.path / "eval_results.json").exists()
