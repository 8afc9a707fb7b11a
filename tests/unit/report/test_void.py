"""Module problems that ask nothing are in no figure and named everywhere; those that could not be asked stay in."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.report_runs import manifest, planned_module, timing, verdict, write_run
from tests.unit.report.test_levels import module_run

from opsmith.core.run import PlannedOp, RunDirectory, RunPlan, Summary
from opsmith.core.verdict import Status, Verdict
from opsmith.report.compare import compare
from opsmith.report.compare_tables import print_comparison, print_runs
from opsmith.report.html import render
from opsmith.report.outcome import NOT_ASKED, outcome
from opsmith.report.publish import publish
from opsmith.report.results import Results
from opsmith.report.run_table import run_table
from opsmith.report.scores import summarise, summarise_op
from opsmith.report.tables import print_results

REASON = "constant: the answer is zero everywhere, in 6 draws of the inputs"


def void(task: str) -> PlannedOp:
    """A problem that asks nothing, with a solution."""
    return msgspec.structs.replace(planned_module(task), void=REASON)


def not_asked(task: str) -> PlannedOp:
    """A problem whose Model does not run, with a solution."""
    return msgspec.structs.replace(planned_module(task), cases=0, not_asked="Model raised")


PLAN = [
    planned_module("L1/1_Right"),
    planned_module("L1/2_Wrong"),
    void("L1/3_Zero"),
    void("L1/3_Zero@1"),
    not_asked("L1/4_Broken"),
    void("L2/1_Zero"),
]
VERDICTS = [
    verdict("L1/1_Right", timings=(timing(3.0),)),
    verdict("L1/2_Wrong", status=Status.WRONG_VALUE),
    *(verdict(op.op, status=Status.VOID, detail=REASON) for op in PLAN if op.void is not None),
]


def scored(plan: Sequence[PlannedOp] = PLAN, verdicts: Sequence[Verdict] = VERDICTS) -> Summary:
    """The summary of these verdicts."""
    return summarise(manifest(), RunPlan(ops=tuple(plan)), verdicts)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """The run of the verdicts above."""
    return module_run(tmp_path / "run", PLAN, VERDICTS)


def test_a_void_problem_is_in_no_count_and_no_score() -> None:
    """As if it were not there, but for its name; each problem is named once, whatever its samples."""
    summary = scored()
    without = scored([op for op in PLAN if op.void is None], [v for v in VERDICTS if v.status is not Status.VOID])
    assert {"L1/3_Zero": REASON, "L2/1_Zero": REASON} == summary.void
    assert {"asked": 3, "answered": 3, "correct": 1} == summary.ops
    assert ["L1", "all"] == [level.level for level in summary.levels]
    assert [1, 2] == [level.void for level in summary.levels]
    bare = tuple(msgspec.structs.replace(level, void=0) for level in summary.levels)
    assert without == msgspec.structs.replace(summary, void={}, levels=bare)


def test_nothing_but_void_problems_is_nothing_asked() -> None:
    """No denominator is zero, and nothing is accepted."""
    summary = scored([void("L1/3_Zero")], VERDICTS[2:3])
    assert ({"asked": 0, "answered": 0, "correct": 0}, False) == (summary.ops, summary.accepted)
    assert ((), {}) == (summary.levels, summary.scores)


def test_a_problem_that_could_not_be_asked_stays_in_the_denominators() -> None:
    """It is not correct, though no case of it failed, and a note names it."""
    summary = scored()
    broken = summary.per_op["L1/4_Broken"]
    assert (False, True, 0, "Model raised") == (broken.accepted, broken.answered, broken.cases, broken.not_asked)
    assert NOT_ASKED == outcome(broken)
    assert 1 / 3 == pytest.approx(summary.scores["correct_share"].value)
    assert 3 == summary.levels[0].problems
    assert "could not be asked, and counted as not correct: L1/4_Broken" in summary.notes
    assert "L1/4_Broken: Model raised" in summary.notes


def test_the_verdict_on_a_void_problem_is_void() -> None:
    """What one kernel gets, in a session or the service: neither a failure nor an acceptance."""
    summary = summarise_op(PLAN[2], VERDICTS[2:3])
    assert (Status.VOID, False, REASON) == (outcome(summary), summary.accepted, summary.void)
    assert not VERDICTS[2].is_failure
    assert not VERDICTS[2].counts_against


@pytest.mark.slow
def test_terminal_and_page_name_void_problems_with_the_reason(run: RunDirectory) -> None:
    """In a line of their own; they are among no failing cases."""
    results = Results.read(run)
    stream = io.StringIO()
    print_results(results, Console(file=stream, width=200))
    text, page = stream.getvalue(), render(results)
    for shown in (f"L1/3_Zero: {REASON}", f"L2/1_Zero: {REASON}", "2 further problems ask nothing"):
        assert shown in text
    assert f'<span class="mono">L1/3_Zero</span> {REASON}' in page
    assert "2 further problems, in no count and no score" in page
    assert 1 == results.failing_count
    empty = Results.read(write_run(run.path.parent / "other", PLAN[:1], VERDICTS[:1]))
    assert 'id="void"' not in render(empty)


@pytest.mark.slow
def test_the_public_files_leave_void_problems_out(run: RunDirectory) -> None:
    """No test, no sample, no row; pass@k names them in its metadata."""
    publish(run)
    assert "Zero" not in (run.path / "full_results.json").read_text()
    assert "Zero" not in (run.path / "operator_summary.csv").read_text()
    assert ["1", "2", "4"] == list(json.loads((run.path / "eval_results.json").read_text()))
    metadata = json.loads((run.path / "pass_at_k_results.json").read_text())["metadata"]
    assert (3, ["L1/3_Zero", "L2/1_Zero"]) == (metadata["total_problems"], list(metadata["void_problems"]))
    assert {"L1/3_Zero", "L2/1_Zero"} == set(json.loads((run.path / "summary.json").read_text())["void"])


def test_comparisons_tell_void_from_not_asked(run: RunDirectory, tmp_path: Path) -> None:
    """A problem that was judged in an earlier run and is void now has neither been lost nor gone."""
    plan = [planned_module("L1/1_Right"), planned_module("L1/3_Zero")]
    before = Results.read(module_run(tmp_path / "before", plan, [VERDICTS[0], verdict("L1/3_Zero")]))
    after = Results.read(run)
    comparison = compare(before, after)
    assert ("PASSED", "VOID") == next((op.before, op.after) for op in comparison.lost if op.op == "L1/3_Zero")
    assert ({}, after.summary.void) == comparison.void
    assert ["PASSED", "VOID"] == [cell.outcome for cell in run_table([before, after], [comparison])["L1/3_Zero"]]
    shows: list[Callable[[Console], None]] = [
        lambda console: print_comparison(comparison, console),
        lambda console: print_runs([before, after], [comparison], console),
    ]
    for show in shows:
        stream = io.StringIO()
        show(Console(file=stream, width=200))
        assert "void, in no count and no score (2)" in stream.getvalue()
        assert REASON in stream.getvalue()


def test_a_run_of_before_there_were_void_problems_is_read(run: RunDirectory) -> None:
    """Its plan and its summary say nothing of them."""
    publish(run)
    for name in ("plan.json", "summary.json"):
        told = json.loads((run.path / name).read_text())
        told.pop("void", None)
        for op in (*told.get("ops", ()), *told.get("per_op", {}).values(), *told.get("levels", ())):
            for field in ("void", "not_asked", "policy"):
                op.pop(field, None) if isinstance(op, dict) else None
        (run.path / name).write_text(json.dumps(told))
    assert {} == run.summary().void
    assert not any(op.void for op in run.plan().ops)
