"""The files that people script against, with the field names that BackendBench writes.

``full_results.json`` and ``failed_tests.json`` hold one object a test, ``operator_summary.csv``
one row an op. Names and files are the public ones; these meanings differ, on purpose:

- A figure that does not exist is ``null`` (json) or empty (csv), never -1, 0, 1.0 or an infinity;
  the json is valid json, without ``NaN`` and ``Infinity``.
- ``speedup`` is reference time over candidate time: more than 1 is faster than eager, or than
  what the run timed against instead.
- A case that failed or was not timed has no performance test, instead of one with speedup 1.0.
- ``operator_summary.csv`` has every op asked. An op that nobody answers has all its tests failed,
  and a case without a verdict is a failed test.
- ``total_tests`` counts tests of that op, correctness and performance.
- ``error_type`` is the status, for example ``WRONG_SHAPE``.
- Times are of one quantity throughout: K (kernel time on the device) where the run has any, else
  E (one call as a caller pays for it).
- Bad calls, which must raise, are not among the tests, nor are void problems. A problem that could not be asked has no
  tests and no rate.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from opsmith.core.run import write_atomically, write_json
from opsmith.core.timing import Timing
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.report.conventions import geometric_mean
from opsmith.report.results import Results

#: Columns of ``operator_summary.csv``, in the public order.
COLUMNS = (
    "operator",
    "total_tests",
    "correctness_tests",
    "performance_tests",
    "passed_correctness_tests",
    "passed_performance_tests",
    "failed_correctness_tests",
    "failed_performance_tests",
    "correctness_rate",
    "avg_speedup",
    "geomean_speedup",
    "max_absolute_error",
    "max_relative_error",
)


def write_exports(results: Results) -> None:
    """Write the three public files into the run directory."""
    tests = [
        verdict
        for verdict in results.verdicts
        if verdict.part is Part.CASE and not verdict.expects_error and verdict.status is not Status.VOID
    ]
    quantity = quantity_of(tests)
    correctness = [_correctness_test(test) for test in tests]
    performance = [
        _performance_test(test, timing) for test in tests for timing in test.timings if timing.quantity == quantity
    ]
    failed = [test for test in correctness if not test["is_correct"]]
    write_json(results.path / "full_results.json", _ordered(correctness + performance))
    write_json(results.path / "failed_tests.json", _ordered(failed))
    write_atomically(results.path / "operator_summary.csv", _csv(results, correctness, performance))


def quantity_of(verdicts: Iterable[Verdict]) -> str:
    """What the exported times are of: K where it was measured of any case, else E."""
    return "K" if any(timing.quantity == "K" for verdict in verdicts for timing in verdict.timings) else "E"


def _correctness_test(verdict: Verdict) -> dict[str, Any]:
    passed = verdict.status is Status.PASSED
    return {
        "op_name": verdict.op,
        "args": verdict.inputs,
        "is_correct": passed,
        "error_msg": verdict.detail,
        "error_type": "" if passed else verdict.status.value,
        "traceback": "\n".join(verdict.evidence),
        "max_abs_error": verdict.figures.max_abs if verdict.figures else None,
        "max_rel_error": verdict.figures.max_rel if verdict.figures else None,
        "test_type": "correctness",
    }


def _performance_test(verdict: Verdict, timing: Timing) -> dict[str, Any]:
    return {
        "op_name": verdict.op,
        "args": verdict.inputs,
        "speedup": timing.speedup,
        "benchmark_time_ms": timing.candidate_us / 1e3,
        "reference_time_ms": timing.reference_us / 1e3,
        "error_msg": "",
        "successfully_ran": True,
        "test_type": "performance",
    }


def _ordered(tests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(tests, key=lambda test: (test["op_name"], test["args"]))


def _csv(results: Results, correctness: Sequence[dict[str, Any]], performance: Sequence[dict[str, Any]]) -> bytes:
    speedups: defaultdict[str, list[float]] = defaultdict(list)
    for test in performance:
        speedups[test["op_name"]].append(test["speedup"])
    errors: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for test in correctness:
        errors[test["op_name"]].append(test)
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for name, op in results.summary.per_op.items():
        timed = speedups[name]
        writer.writerow(
            {
                "operator": name,
                "total_tests": op.cases + len(timed),
                "correctness_tests": op.cases,
                "performance_tests": len(timed),
                "passed_correctness_tests": op.passed,
                "passed_performance_tests": len(timed),
                "failed_correctness_tests": op.cases - op.passed,
                "failed_performance_tests": 0,
                "correctness_rate": op.passed / op.cases if op.cases else None,
                "avg_speedup": statistics.fmean(timed) if timed else None,
                "geomean_speedup": geometric_mean(timed) if timed else None,
                "max_absolute_error": _largest(errors[name], "max_abs_error"),
                "max_relative_error": _largest(errors[name], "max_rel_error"),
            }
        )
    return stream.getvalue().encode()


def _largest(tests: Iterable[dict[str, Any]], name: str) -> float | None:
    return max((test[name] for test in tests if test[name] is not None), default=None)
