"""``result.json``: results on MultiKernelBench's references, with the names and fields that the project writes.

An op's first sample is told. ``performance`` is milliseconds, or null in a run without timing: ``mean`` the geometric
mean over the timed cases, ``min`` and ``max`` the medians of two of them; there is no ``std``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsmith.core.problems import split_sample
from opsmith.core.run import OpSummary, write_json
from opsmith.core.verdict import Status
from opsmith.formats.multi_kernel_bench import reference_folder
from opsmith.report.conventions import geometric_mean
from opsmith.report.exports import quantity_of
from opsmith.report.outcome import outcome
from opsmith.report.results import Results


def write_multi_kernel_bench(results: Results) -> None:
    """Write the file into the run directory; nothing for a run of other problems."""
    problems = results.manifest.options.selection.problems
    if problems is None or reference_folder(Path(problems).parent) != Path(problems):
        return
    found = {
        task.rpartition("/")[2]: _result(results, task, op)
        for task, op in results.summary.per_op.items()
        if split_sample(task)[1] == 0 and op.answered
    }
    write_json(results.path / "result.json", found)


def _result(results: Results, task: str, op: OpSummary) -> dict[str, Any]:
    quantity = quantity_of(results.verdicts)
    own = [verdict for verdict in results.verdicts if verdict.op == task]
    times_ms = [t.candidate_us / 1e3 for verdict in own for t in verdict.timings if t.quantity == quantity]
    told: dict[str, Any] = {
        "compiled": Status.LOAD_FAILED not in op.statuses,
        "correctness": op.accepted,
        "performance": None,
        "hardware": results.manifest.environment.device_name,
        "cheating": outcome(op) in (Status.DISHONEST, Status.POLICY),
    }
    if op.accepted and times_ms:
        told["performance"] = {
            "mean": geometric_mean(times_ms),
            "min": min(times_ms),
            "max": max(times_ms),
            "num_trials": sum(t.blocks for verdict in own for t in verdict.timings if t.quantity == quantity),
        }
    elif not op.accepted:
        first = next((verdict.detail for verdict in own if verdict.counts_against), outcome(op))
        told["correctness_info" if told["compiled"] else "compile_info"] = first
    return told
