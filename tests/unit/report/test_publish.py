"""What a run directory holds after publishing: summary, exports and page."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path

import msgspec
import pytest
from tests.report_runs import HOSTILE, figures, manifest, planned, timing, verdict, write_large_run, write_run

from opsmith.core.run import RunDirectory
from opsmith.core.verdict import Status
from opsmith.errors import BadInput, DamagedRun
from opsmith.report.exports import COLUMNS
from opsmith.report.html import FAILING_CASES, render, variant
from opsmith.report.publish import publish, publish_results
from opsmith.report.results import Results


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Three ops: one timed and right, one with a wrong value, one without a kernel."""
    ops = [planned("add.Tensor", 1), planned("relu.default", 2), planned("tril.default", 4, answered=False)]
    verdicts = [
        verdict("add.Tensor", figures=figures(1e-7), timings=(timing(2.0, "K"), timing(1.5, "E"))),
        verdict("relu.default", 0),
        verdict("relu.default", 1, Status.WRONG_VALUE, detail="too large", evidence=("a", "b"), figures=figures(0.5)),
        verdict("relu.default", 9, Status.DID_NOT_RAISE, expects_error=True),
    ]
    return write_run(tmp_path / "run", ops, verdicts)


def test_summary_on_disk_is_the_summary_returned(run: RunDirectory) -> None:
    """``summary.json`` reads back as the same record, with its scores as plain objects."""
    summary = publish(run)
    assert summary == run.summary()
    raw = json.loads((run.path / "summary.json").read_text())
    assert {"value", "denominator", "convention"} == set(raw["scores"]["correct_share"])


@pytest.mark.slow
def test_publishing_twice_changes_nothing(run: RunDirectory) -> None:
    """It can be called again at any time."""
    publish(run)
    first = {path.name: path.read_bytes() for path in run.path.iterdir()}
    publish(run)
    assert first == {path.name: path.read_bytes() for path in run.path.iterdir()}


@pytest.mark.slow
def test_whole_suite_is_published_quickly_and_small(tmp_path: Path) -> None:
    """1,000 ops and 30,000 cases: under 10 seconds and under 2.5 MB."""
    large = write_large_run(tmp_path / "run")
    start = time.process_time()
    summary = publish(large)
    assert time.process_time() - start < 10
    assert 1000 == summary.ops["asked"]
    assert 30_000 == summary.cases["asked"]
    assert (large.path / "report.html").stat().st_size < 2.5e6


@pytest.mark.slow
def test_page_stays_small_when_everything_fails(tmp_path: Path) -> None:
    """Every case failing with long evidence: the page is capped and says so."""
    ops = [planned(f"op{n:03d}.default", 100) for n in range(200)]
    long = tuple(f"line {n} {HOSTILE}" for n in range(200))
    verdicts = [
        verdict(op.op, n, Status.ERROR, detail=f"{n} {HOSTILE}" * 50, evidence=long) for op in ops for n in range(100)
    ]
    page = render(Results.read(write_run(tmp_path / "run", ops, verdicts)))
    assert len(page) < 5e6
    assert f"{FAILING_CASES:,} of 20,000 are on this page" in page


def test_every_failing_op_is_shown_before_any_op_is_shown_twice(tmp_path: Path) -> None:
    """One op with many failures does not hide the others."""
    ops = [planned("aaa.default", 50), planned("zzz.default", 1)]
    verdicts = [verdict("aaa.default", n, Status.ERROR) for n in range(50)]
    results = Results.read(write_run(tmp_path / "run", ops, [*verdicts, verdict("zzz.default", 0, Status.ERROR)]))
    assert ["aaa.default", "aaa.default", "zzz.default"] == [case.op for case in results.failing(3)]


def test_every_status_of_an_op_is_shown_before_any_is_shown_twice(tmp_path: Path) -> None:
    """What a policy refuses stands beside what is wrong."""
    statuses = [Status.WRONG_VALUE] * 6 + [Status.POLICY] * 2 + [Status.ERROR]
    verdicts = [verdict("aaa.default", n, status) for n, status in enumerate(statuses)]
    results = Results.read(write_run(tmp_path / "run", [planned("aaa.default", 9)], verdicts))
    first = ["WRONG_VALUE", "POLICY", "ERROR"]
    assert [*first, "WRONG_VALUE"] == [str(case.status) for case in results.failing(4)]


def test_page_names_no_other_file_and_no_host(run: RunDirectory) -> None:
    """Nothing in the page's own markup loads anything."""
    publish(run)
    page = (run.path / "report.html").read_text()
    assert [] == re.findall(r"""(?:src|href)=["']?(?!data:|#)[^"'> ]+""", page)
    assert "http" not in re.sub(r'<script type="text/plain".*?</script>', "", page).replace("http-equiv", "")


def test_hostile_text_is_escaped_in_the_markup(tmp_path: Path) -> None:
    """Names and notes with markup stand in the page as text, from the title to the facts."""
    hostile = manifest(
        notes=(HOSTILE,), options=msgspec.structs.replace(manifest().options, backend=HOSTILE), command=("run", HOSTILE)
    )
    page = render(Results.read(write_run(tmp_path / "run", [planned()], [], hostile)))
    assert "<img" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert 3 == page.count("</script>")


def test_page_that_cannot_be_written_is_bad_input(run: RunDirectory, tmp_path: Path) -> None:
    """A folder that does not exist is the user's mistake: one line, no traceback."""
    with pytest.raises(BadInput, match="cannot write the page"):
        publish_results(run, Results.read(run), tmp_path / "missing" / "report.html")


def test_exports_have_the_public_field_names(run: RunDirectory) -> None:
    """The names that people script against, in both kinds of test."""
    publish(run)
    tests = json.loads((run.path / "full_results.json").read_text())
    by_type = {test["test_type"]: set(test) - {"test_type"} for test in tests}
    assert {
        "correctness": {
            "op_name",
            "args",
            "is_correct",
            "error_msg",
            "error_type",
            "traceback",
            "max_abs_error",
            "max_rel_error",
        },
        "performance": {
            "op_name",
            "args",
            "speedup",
            "benchmark_time_ms",
            "reference_time_ms",
            "error_msg",
            "successfully_ran",
        },
    } == by_type


def test_failed_tests_are_the_ones_that_failed(run: RunDirectory) -> None:
    """The wrong value is there; the bad call, which is no test, is not."""
    publish(run)
    (failed,) = json.loads((run.path / "failed_tests.json").read_text())
    assert ("relu.default", "WRONG_VALUE", "too large", "a\nb") == (
        failed["op_name"],
        failed["error_type"],
        failed["error_msg"],
        failed["traceback"],
    )


def test_absent_figures_are_null_or_empty(run: RunDirectory) -> None:
    """Never -1, 0 or 1.0 for something that was not measured."""
    publish(run)
    tests = json.loads((run.path / "full_results.json").read_text())
    untimed = next(test for test in tests if test["op_name"] == "relu.default" and test["is_correct"])
    assert untimed["max_abs_error"] is None
    with (run.path / "operator_summary.csv").open(newline="") as stream:
        rows = {row["operator"]: row for row in csv.DictReader(stream)}
    assert COLUMNS == tuple(rows["add.Tensor"])
    assert ("", "", "") == tuple(
        rows["tril.default"][name] for name in ("avg_speedup", "geomean_speedup", "max_absolute_error")
    )


def test_operator_summary_has_every_op_asked(run: RunDirectory) -> None:
    """An op that nobody answers has all its tests failed, and timing is of one quantity."""
    publish(run)
    with (run.path / "operator_summary.csv").open(newline="") as stream:
        rows = {row["operator"]: row for row in csv.DictReader(stream)}
    assert ("4", "0", "4", "0.0") == tuple(
        rows["tril.default"][name]
        for name in ("correctness_tests", "passed_correctness_tests", "failed_correctness_tests", "correctness_rate")
    )
    assert ("1", "2.0") == (rows["add.Tensor"]["performance_tests"], rows["add.Tensor"]["geomean_speedup"])


def test_damaged_verdict_stops_publishing(run: RunDirectory) -> None:
    """No report is made of a record that cannot be trusted, and nothing is overwritten."""
    publish(run)
    before = (run.path / "summary.json").read_bytes()
    with run.verdicts_path.open("ab") as stream:
        stream.write(b'{"op": "relu.def\n')
    with pytest.raises(DamagedRun, match="line 5 is damaged"):
        publish(run)
    assert before == (run.path / "summary.json").read_bytes()


@pytest.mark.parametrize(
    ("op", "schema", "expected"),
    [
        ("relu.default", "aten::relu(Tensor self) -> Tensor", "functional"),
        ("relu_.default", "aten::relu_(Tensor(a!) self) -> Tensor(a!)", "in-place"),
        ("add.out", "aten::add.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", "out="),
        ("view.default", "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", "view"),
        ("split.Tensor", "aten::split.Tensor(Tensor(a -> *) self, SymInt n, int dim=0) -> Tensor(a)[]", "view"),
        ("tanh_backward.default", "aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor", "backward"),
        ("_foo.default", "aten::_foo(Tensor self, Tensor(a!) state) -> Tensor", "mutable"),
    ],
)
def test_variant_is_read_from_name_and_schema(op: str, schema: str, expected: str) -> None:
    """The plot of variants groups by what the overload does."""
    assert expected == variant(planned(op, schema=schema))
