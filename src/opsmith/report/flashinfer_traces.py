"""``traces/LEVEL/NAME.jsonl``: results on flashinfer-trace and SOL-ExecBench tasks, in their schema.

A line is one solution on one workload, with the status of the case that asked it. Where a solution fails what no
workload asks (other values, its conduct), no workload of it is PASSED: the log says which case it was. A PASSED line
needs times in that schema; in a run without timing they are 0, which is the schema's own default.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.case import CaseAddress
from opsmith.core.problems import split_sample
from opsmith.core.run import PlannedOp
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.formats.flashinfer import Task, Workload
from opsmith.formats.flashinfer_files import FORMAT
from opsmith.formats.origin import origin_of
from opsmith.report.exports import quantity_of
from opsmith.report.results import Results

_STATUSES = {
    Status.PASSED: "PASSED",
    Status.WRONG_VALUE: "INCORRECT_NUMERICAL",
    Status.WRONG_SHAPE: "INCORRECT_SHAPE",
    Status.WRONG_DTYPE: "INCORRECT_DTYPE",
    Status.LOAD_FAILED: "COMPILE_ERROR",
    Status.TIMEOUT: "TIMEOUT",
}
#: What SOL-ExecBench has a status for and flashinfer-trace has not.
_SOL_STATUSES = {
    Status.DISHONEST: "REWARD_HACK",
    Status.POLICY: "REWARD_HACK",
    Status.REFERENCE_FAILED: "INVALID_REFERENCE",
}
_OTHER = "RUNTIME_ERROR"


def write_flashinfer_traces(results: Results) -> None:
    """Write the files into the run directory; nothing for a run of other tasks."""
    if results.manifest.options.selection.problems is None:
        return
    of_op: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in results.verdicts:
        of_op[verdict.op].append(verdict)
    lines: defaultdict[str, list[bytes]] = defaultdict(list)
    for planned in results.plan.ops:
        origin = origin_of(Path(planned.schema))
        if origin is None or origin.format != FORMAT or planned.kernel is None:
            continue
        problem = split_sample(planned.op)[0]
        lines[problem] += [
            msgspec.json.encode(trace) for trace in _traces(results, planned, origin.read(Task), of_op[planned.op])
        ]
    for problem, found in lines.items():
        file = results.path / "traces" / f"{problem}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(line + b"\n" for line in found))


def _traces(results: Results, planned: PlannedOp, task: Task, verdicts: Sequence[Verdict]) -> Iterator[dict[str, Any]]:
    by_workload = {
        address.sample: verdict
        for verdict in verdicts
        if verdict.part is Part.CASE and (address := CaseAddress.parse(verdict.case)).source == "workload"
    }
    elsewhere = next((verdict for verdict in verdicts if verdict.counts_against), None)
    assert planned.kernel is not None
    for number, verdict in sorted(by_workload.items()):
        decides = verdict if elsewhere is None or verdict.counts_against else elsewhere
        yield {
            "definition": task.definition.name,
            "workload": _workload(task.workloads[number]),
            "solution": planned.kernel.provenance.note or planned.op,
            "evaluation": _evaluation(results, decides, verdict, sol=task.sol),
        }


def _workload(workload: Workload) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(workload)
    return fields if workload.tolerance is not None else {k: v for k, v in fields.items() if k != "tolerance"}


def _evaluation(results: Results, decides: Verdict, verdict: Verdict, *, sol: bool) -> dict[str, Any]:
    environment = results.manifest.environment
    status = (_STATUSES | (_SOL_STATUSES if sol else {})).get(decides.status, _OTHER)
    log = "" if decides.status is Status.PASSED else f"{decides.status} {decides.case}: {decides.detail}"
    return {
        "status": status,
        "environment": {
            "hardware": environment.device_name,
            "libs": {"torch": environment.torch, **({"triton": environment.triton} if environment.triton else {})},
        },
        "timestamp": results.manifest.started_utc,
        "log": log,
        "correctness": _correctness(decides) if status in ("PASSED", "INCORRECT_NUMERICAL") else None,
        "performance": _performance(results, verdict) if status == "PASSED" else None,
    }


def _correctness(verdict: Verdict) -> dict[str, float]:
    figures = verdict.figures
    return {
        "max_relative_error": 0.0 if figures is None else figures.max_rel,
        "max_absolute_error": 0.0 if figures is None else figures.max_abs,
    }


def _performance(results: Results, verdict: Verdict) -> dict[str, float]:
    quantity = quantity_of(results.verdicts)
    timing = next((timing for timing in verdict.timings if timing.quantity == quantity), None)
    return {
        "latency_ms": 0.0 if timing is None else timing.candidate_us / 1e3,
        "reference_latency_ms": 0.0 if timing is None else timing.reference_us / 1e3,
        "speedup_factor": 0.0 if timing is None else timing.speedup,
    }
