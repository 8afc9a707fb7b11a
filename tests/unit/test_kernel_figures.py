"""What scripts make of runs of the shipped backend: figures over ops, and the overloads of the public rule."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from benchmarks.kernels.public_rule import answers, found_by_dtype, overloads_of_rule
from benchmarks.kernels.trace_figures import Record, figures
from tests.report_runs import manifest, planned, timed_case, timing, verdict, write_run

from opsmith.core.run import Options
from opsmith.core.timing import Work
from opsmith.core.verdict import Status, Verdict
from opsmith.report.publish import publish

pytestmark = pytest.mark.slow

LARGE = Work(least_bytes=80_000_000, traffic_bytes=80_000_000)
SMALL = Work(least_bytes=8_000, traffic_bytes=8_000)


def timed(op: str, number: int, speedup: float, percent: float = 80.0) -> Verdict:
    """A case that passed and was timed."""
    call = timing(speedup / 2, "E", candidate_us=60.0 if number else 10.0)
    return verdict(op, number, timings=(timing(speedup, percent_of_floor=percent), call))


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Of a run with a fast op, a slow one, a product, an op that declines an input and one without a kernel."""
    verdicts = [
        timed("roll.default", 0, 4.0, percent=90.0),
        timed("roll.default", 1, 1.0, percent=20.0),
        timed("tanh.default", 0, 0.5, percent=70.0),
        verdict("tanh.default", 1, Status.UNSUPPORTED, detail="complex128 is not served", count=6),
        timed("mm.default", 0, 0.9),
        verdict("erf.default", 0, Status.WRONG_VALUE),
    ]
    works = [LARGE, SMALL, LARGE, LARGE]
    with_timings = [one for one in verdicts if one.timings]
    cases = [timed_case(one, work=work) for one, work in zip(with_timings, works, strict=True)]
    untimed = [msgspec.structs.replace(one, timings=()) for one in verdicts]
    ops = [planned(op) for op in ("roll.default", "tanh.default", "mm.default", "erf.default")]
    return figures([write_run(tmp_path / "run", [*ops, planned("view.default", answered=False)], untimed, timed=cases)])


def test_products_are_a_class_of_their_own(record: Record) -> None:
    """What eager leaves to a library is held to another aim, and would hide what the others do."""
    others, library = record.k["all others"], record.k["library class"]
    assert (2, 3, 1.118) == (others.ops, others.inputs, round(others.geomean or 0, 3))  # Medians of 2.5 and 0.5.
    assert (1, 0.9, {"mm.default": 0.9}) == (library.ops, library.geomean, library.slowest)
    assert (0.559, 0.45) == (round(record.e["all others"].geomean or 0, 3), record.e["library class"].geomean)


def test_a_declined_input_is_eagers_once_installed(record: Record) -> None:
    """It lowers nothing but the distance from eager."""
    assert 1.3693 == record.k["all others"].geomean_as_installed  # Medians of 2.5, and of 0.5 and 1.
    assert {"tanh.default": ("(T([2, 3], f32),): complex128 is not served",)} == record.declined


def test_rows_that_wait_for_their_launch_are_told_apart(record: Record) -> None:
    """Of roll's second input eager's kernel takes 10 of the 30 us of its call."""
    assert (1, 1, 0.5) == (*msgspec.structs.astuple(record.e_waiting["all others"])[:3],)
    assert 0 == record.e_waiting["library class"].ops


def test_only_large_rows_are_held_against_the_floor(record: Record) -> None:
    """A small one waits for its launch, and a product for its multiplications."""
    assert (2, 80.0) == (record.large_rows, record.large_percent_of_floor)
    assert {"tanh.default": 70.0, "roll.default": 90.0} == record.large_slowest


def test_what_is_not_served_or_wrong_is_told(record: Record) -> None:
    """By occurrences, not inputs: one declined input may be most of what a model calls."""
    assert (4 / 11, ("view.default",)) == (record.served_share, record.unanswered)
    assert {"asked": 5, "answered": 4, "correct": 2} == record.ops
    assert {"tanh.default": {"UNSUPPORTED": 1}, "erf.default": {"WRONG_VALUE": 1}} == record.not_passed


def test_an_op_of_several_runs_counts_as_in_the_last(tmp_path: Path) -> None:
    """Wrong and slow before it was mended; what was not asked again stays."""
    folders = []
    for name, verdicts in (
        (
            "before",
            [timed("roll.default", 0, 0.5), verdict("erf.default", 0, Status.WRONG_VALUE), timed("mm.default", 0, 0.9)],
        ),
        ("after", [timed("roll.default", 0, 3.0), timed("erf.default", 0, 2.0)]),
    ):
        cases = [timed_case(one, work=LARGE) for one in verdicts if one.timings]
        untimed = [msgspec.structs.replace(one, timings=()) for one in verdicts]
        folders.append(write_run(tmp_path / name, [planned(one.op) for one in verdicts], untimed, timed=cases))
    record = figures(folders)
    assert (2.4495, {}) == (record.k["all others"].geomean, record.not_passed)
    assert 0.9 == record.k["library class"].geomean
    assert {"PASSED": 3} == record.statuses


@pytest.mark.slow
def test_the_rule_counts_calls_that_dispatch_one_op_with_the_functions_own_arguments() -> None:
    """Softmax takes another argument than its op, and the names of special functions have a dot."""
    found = overloads_of_rule("f32", "cpu")
    assert {"relu.default", "topk.default", "addmm.default"} <= found
    assert not {"_softmax.default", "special_zeta.default", "add_.Tensor"} & found
    assert 280 <= len(found) <= 380


def test_an_overload_is_correct_when_all_of_its_cases_are(tmp_path: Path) -> None:
    """One that nobody answers, or that the suite has no case of, is named; what was judged again counts."""
    options = Options(suite="opinfo", backend="opsmith", device="cpu", dtypes=("f32",))
    ops = [planned("relu.default", 1), planned("abs.default", 2), planned("topk.default", 1, answered=False)]
    declined = [verdict("abs.default", 0), verdict("abs.default", 1, Status.UNSUPPORTED)]
    first = write_run(tmp_path / "1", ops, declined, manifest(options=options))
    again = write_run(tmp_path / "2", ops[:1], [verdict("relu.default")], manifest(options=options))
    for run in (first, again):
        publish(run)
    by_dtype = found_by_dtype([first, again])
    found = answers("f32", by_dtype["f32"], "cpu")
    assert (2, 1) == (found.answered, found.correct)
    assert {"asked": 3, "answered": 2, "correct": 1} == found.wider
    assert {"PASSED": 1, "UNSUPPORTED": 1} == found.not_correct["abs.default"]
    assert {"no kernel": 1} == found.not_correct["topk.default"]
    assert {"no kernel": 0} == found.not_correct["addmm.default"]
