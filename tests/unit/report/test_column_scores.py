"""Columns of whole models: what they are held against, and what stands where there is no figure."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console
from tests.report_runs import HOSTILE, manifest, planned, timed_case, timing, verdict

from opsmith.core.op import TaskKind
from opsmith.core.run import ColumnResult, Options, PlannedOp, RunDirectory, RunPlan, Selection
from opsmith.core.timing import Cause, Undecided
from opsmith.core.verdict import Status
from opsmith.report.column_scores import column_scores
from opsmith.report.column_tables import case_table, column_tables
from opsmith.report.publish import publish
from opsmith.report.results import Results
from opsmith.report.scores import summarise
from opsmith.report.tables import print_results
from opsmith.suites.models.workload import void_finding

MIB = 1 << 20
TASKS = ("gpt/infer", "gpt/train")


def model(task: str) -> PlannedOp:
    """A task of the suite with one case."""
    return msgspec.structs.replace(planned(task, 1, schema="gpt"), kind=TaskKind.MODEL)


PLAN = RunPlan(ops=tuple(map(model, TASKS)))


def result(column: str, task: str, speedup: float | None = None, **changes: object) -> ColumnResult:
    """What was found of a model under a column, which is right unless told otherwise."""
    status = changes.pop("status", Status.PASSED)
    assert isinstance(status, Status)
    found = verdict(task, status=status, detail=str(changes.pop("detail", "")))
    timed = None
    if speedup is not None:
        timed = timed_case(found, timings=(timing(speedup, "E"),), first_call_s=2.0)
    record = ColumnResult(column=column, verdict=found, timed=timed)
    return msgspec.structs.replace(record, **changes)


RESULTS = [
    result("eager", TASKS[0], 1.0, peak_bytes=100 * MIB),
    result("fast", TASKS[0], 2.0, peak_bytes=50 * MIB, graphs=1),
    result("broken", TASKS[0], status=Status.ERROR, detail="ValueError: no such op"),
    result("eager", TASKS[1], 1.0, peak_bytes=100 * MIB),
    result("fast", TASKS[1], 8.0, peak_bytes=200 * MIB, graphs=2),
]


def test_a_column_is_scored_over_all_cases_asked() -> None:
    """One that has not been judged yet did not pass."""
    scores = column_scores(PLAN, RESULTS)
    assert ["eager", "fast", "broken"] == list(scores)
    assert (2, 2, 4.0) == (scores["fast"].cases, scores["fast"].passed, round(scores["fast"].speedup_e or 0, 9))
    assert (4.0, 3, {"FASTER": 2}) == (scores["fast"].first_call_s, scores["fast"].graphs, scores["fast"].labels_e)
    assert (2, 0, {"ERROR": 1}) == (scores["broken"].cases, scores["broken"].passed, scores["broken"].statuses)


def test_memory_is_told_over_that_of_the_column_eager() -> None:
    """Half in one case and twice as much in the other are as much in the mean."""
    assert 1.0 == round(column_scores(PLAN, RESULTS)["fast"].memory or 0, 9)
    assert column_scores(PLAN, [one for one in RESULTS if one.column != "eager"])["fast"].memory is None


def test_a_model_whose_time_is_undecided_has_no_speedup_and_a_reason() -> None:
    """It counts as such."""
    one = result("fast", TASKS[0])
    undecided = Undecided(quantity="E", cause=Cause.TOO_SHORT, reason="too short to be measured")
    timed = timed_case(one.verdict, undecided=(undecided,))
    found = [msgspec.structs.replace(one, timed=timed)]
    scores = column_scores(PLAN, found)
    assert (None, {"UNDECIDED": 1}) == (scores["fast"].speedup_e, scores["fast"].labels_e)
    _, speedups = column_tables(scores, found)
    assert ("gpt/infer f32", "undecided") == speedups.rows[0]
    assert "E too short to be measured" == case_table(found).rows[0][-1]


def test_what_does_not_exist_is_none() -> None:
    """Never a number that stands for nothing."""
    broken = column_scores(PLAN, RESULTS)["broken"]
    assert [None] * 5 == [broken.speedup_k, broken.speedup_e, broken.first_call_s, broken.graphs, broken.memory]


def test_tables_put_columns_side_by_side_and_a_status_where_there_is_no_speedup() -> None:
    """A reader sees at a glance which backend runs which model."""
    _, speedups = column_tables(column_scores(PLAN, RESULTS), RESULTS)
    assert ("model", "eager", "fast", "broken") == speedups.columns
    assert ("gpt/infer f32", "1.00x", "2.00x", "ERROR") == speedups.rows[0]
    assert ("gpt/train f32", "1.00x", "8.00x", "-") == speedups.rows[1]
    rows = case_table(RESULTS).rows
    assert "ValueError: no such op" == rows[2][-1]
    assert {len(case_table(RESULTS).columns)} == {*map(len, rows)}


def test_a_run_of_ops_has_no_columns() -> None:
    """Nor tables of them."""
    assert {} == column_scores(PLAN, [])
    assert [] == column_tables({}, [])


def write(path: Path) -> RunDirectory:
    """A finished run of whole models; what a compiler says is a stranger's."""
    selection = Selection(models=("gpt",), sizes="small", columns=("broken",), autocast=True)
    options = Options(suite="models", backend="fast", device="cpu", dtypes=("f32",), selection=selection)
    run = RunDirectory(path)
    run.create(1)
    run.write("run.json", manifest(options=options))
    run.write("plan.json", PLAN)
    hostile = result("broken", TASKS[1], status=Status.ERROR, detail=HOSTILE)
    with run.appender("columns.jsonl") as append, run.appender("verdicts.jsonl") as append_verdict:
        for found in (*RESULTS, hostile):
            append(found)
            if found.column == "fast":
                append_verdict(msgspec.structs.replace(found.verdict, status=Status.WRONG_VALUE))
    return run


def test_a_page_shows_the_columns_and_nothing_that_a_compiler_said_runs(tmp_path: Path) -> None:
    """Messages of exceptions are a stranger's text."""
    run = write(tmp_path / "run")
    summary = publish(run)
    assert {"eager", "fast", "broken"} == set(summary.columns)
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "Columns against eager" in page
    assert "<img src=x" not in page


def test_a_failing_model_is_shown_with_the_command_that_judges_it_alone(tmp_path: Path) -> None:
    """Under the backend's column, at the sizes of the run."""
    results = Results.read(write(tmp_path / "run"))
    console = Console(width=200, record=True, file=io.StringIO())
    print_results(results, console)
    text = console.export_text()
    assert "--models gpt --mode infer --sizes small --timing off --autocast" in text
    assert "Columns against eager" in text


def test_a_void_model_is_in_no_denominator() -> None:
    """What eager's first call shows is no column's doing; a task of several dtypes loses the void ones alone."""
    found = [result("fast", TASKS[0], 2.0), *(result("fast", TASKS[1], status=Status.VOID, detail="constant: same"),)]
    assert (1, 1, {"PASSED": 1}) == (
        (scores := column_scores(PLAN, found)["fast"]).cases,
        scores.passed,
        scores.statuses,
    )
    summary = summarise(manifest(), PLAN, [each.verdict for each in found], columns=found)
    assert ({TASKS[1]: "constant: same"}, [TASKS[0]]) == (summary.void, list(summary.per_op))
    assert {"asked": 1, "answered": 1, "correct": 1} == summary.ops
    two = RunPlan(ops=(msgspec.structs.replace(model(TASKS[0]), cases=2),))
    half = [verdict(TASKS[0]), verdict(TASKS[0], 1, Status.VOID, detail="constant: same")]
    summary = summarise(manifest(), two, half)
    assert ({}, True, {"asked": 1, "passed": 1}) == (summary.void, summary.accepted, summary.cases)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([(torch.zeros(2), torch.ones(3)), (torch.zeros(2), torch.ones(3))], "the same to 2 different batches"),
        (
            [torch.full((2,), torch.nan), torch.full((2,), torch.inf)],
            "not one element of the answer",
        ),
        ([torch.zeros(2), torch.tensor([0.0, 1e-7])], None),
        ([torch.zeros(2), torch.zeros(3)], None),
        ([torch.tensor([torch.nan, 1.0]), torch.tensor([torch.nan, 2.0])], None),
        ([torch.zeros(2)], None),
        ([torch.arange(3), torch.arange(3)], "the same to 2 different batches"),
    ],
)
def test_a_model_that_answers_every_batch_alike_asks_nothing(answers: list[Any], expected: str | None) -> None:
    """To the bit: nothing less says so in a low precision."""
    finding = void_finding(answers)
    assert (finding is None) is (expected is None)
    assert finding is None or str(expected) in finding.detail
