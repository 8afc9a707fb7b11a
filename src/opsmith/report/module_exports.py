"""The files that people script against in runs of module problems, with the field names that KernelBench writes.

``eval_results.json`` holds the samples of each problem, ``pass_at_k_results.json`` the estimates of pass@k. A problem
is called by its number, as the public files have one level each; where a run asks several levels, or a problem has no
number, all of them are called by their whole name, ``L1/23_Softmax``. These meanings differ, on purpose:

- A problem that nobody answers is there, without a sample, so that it stays in every denominator.
- A problem that is void is in neither, but for ``void_problems`` in the metadata of pass@k: name -> reason.
- ``runtime`` is milliseconds of K where the run has it, else of E: the geometric mean over the timed cases of the
  median of each. ``min`` and ``max`` are the medians of two cases. Where there is no time it is -1, as in KernelBench's
  own files, whose scripts calculate with it.
- pass@k stands there for those k that every answered problem has samples for, and no k is lowered to what is there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opsmith.core.problems import level_of, sample_task
from opsmith.core.run import OpSummary, write_json
from opsmith.core.timing import Timing
from opsmith.core.verdict import Status
from opsmith.report.conventions import geometric_mean
from opsmith.report.exports import quantity_of
from opsmith.report.levels import correct_of, pass_at_k, samples_by_problem
from opsmith.report.outcome import outcome
from opsmith.report.results import Results

#: KernelBench's own number for a time that does not exist.
NO_TIME = -1.0

_NUMBERED = re.compile(r"(?:[^/]+/)?(\d+)[^/]*")


def write_module_exports(results: Results) -> None:
    """Write both files into the run directory; nothing for a run of ops."""
    if results.summary.levels:
        write_json(results.path / "eval_results.json", eval_results(results))
        write_json(results.path / "pass_at_k_results.json", pass_at_k_results(results))


def eval_results(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Problem -> its samples."""
    problems = samples_by_problem(results.summary.per_op)
    timings = _timings(results)
    return {
        key: [
            _sample(results, number, sample, timings[sample_task(task, number)])
            for number, sample in problems[task].items()
        ]
        for task, key in public_names(problems).items()
    }


def pass_at_k_results(results: Results) -> dict[str, Any]:
    """Averages over all problems, how many there are, and each of them."""
    problems = samples_by_problem(results.summary.per_op)
    of_all = results.summary.levels[-1]
    ks = list(map(int, of_all.pass_at))
    return {
        "averages": {f"avg_pass@{k}": of_all.pass_at[str(k)] for k in ks},
        "metadata": {
            "total_problems": of_all.problems,
            "problems_with_samples": of_all.answered,
            "total_evaluated_samples": of_all.samples,
            "total_correct_samples": of_all.correct,
            "void_problems": results.summary.void,
            **{f"pass@{k}_count": of_all.answered for k in ks},
        },
        "problems": {key: _passes(problems[task], ks) for task, key in public_names(problems).items()},
    }


def public_names(tasks: Iterable[str]) -> dict[str, str]:
    """Task -> what the public files call it."""
    names = list(tasks)
    levels = {level_of(name) for name in names}
    numbers = [found[1] for name in names if (found := _NUMBERED.fullmatch(name))]
    if len(levels) == 1 and len(set(numbers)) == len(names):
        return dict(zip(names, numbers, strict=True))
    return {name: name for name in names}


def _timings(results: Results) -> Mapping[str, Sequence[Timing]]:
    """Task -> timings of its cases, of K where the run has any, else of E."""
    quantity = quantity_of(results.verdicts)
    found: defaultdict[str, list[Timing]] = defaultdict(list)
    for verdict in results.verdicts:
        found[verdict.op] += [timing for timing in verdict.timings if timing.quantity == quantity]
    return found


def _sample(results: Results, number: int, sample: OpSummary, timings: Sequence[Timing]) -> dict[str, Any]:
    where = {
        "hardware": results.manifest.environment.device_name,
        "device": results.manifest.options.device,
    }
    stats = _runtime_stats(timings) if sample.accepted and timings else None
    return {
        "sample_id": number,
        "compiled": Status.LOAD_FAILED not in sample.statuses,
        "correctness": sample.accepted,
        "metadata": {**where, "correctness_trials": f"({sample.passed} / {sample.cases})", "status": outcome(sample)},
        "runtime": NO_TIME if stats is None else stats["mean"],
        "runtime_stats": {} if stats is None else stats | where,
    }


def _runtime_stats(timings: Sequence[Timing]) -> dict[str, Any]:
    times_ms = [timing.candidate_us / 1e3 for timing in timings]
    return {
        "mean": geometric_mean(times_ms),
        "min": min(times_ms),
        "max": max(times_ms),
        "num_trials": sum(timing.blocks for timing in timings),
        "quantity": timings[0].quantity,
    }


def _passes(samples: Mapping[int, OpSummary], ks: Sequence[int]) -> dict[str, Any]:
    correct = correct_of(samples)
    passes = {f"pass@{k}": pass_at_k(len(samples), correct, k) for k in ks if samples}
    return {"total_samples": len(samples), "correct_samples": correct, **passes}
