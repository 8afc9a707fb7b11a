"""What common harnesses do, to show that the hacks of ``tests/cheats`` are real.

It imports the candidate into its own process, draws inputs of one shape with ``torch.randn`` under
seed 0, compares with ``torch.allclose`` at 1e-2, takes the time of repeated calls on the same
inputs with ``time.perf_counter``, and prints its report as one line of JSON.

It is no part of opsmith, and nothing here is to be imitated. One candidate is
``python -m tests.naive_evaluator KERNEL.py TASK``; :func:`evaluate_all` evaluates many, each in a fork
of one process that has imported torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from opsmith.core.op import folder_name

SHAPE = (64, 64)
TOLERANCE = 1e-2
TIMED_CALLS = 20
LIMIT_S = 20


class Job(NamedTuple):
    """A kernel file, the overload that it answers, and whether the candidate runs before the reference."""

    kernel: Path
    task: str
    candidate_first: bool = False


class Report(NamedTuple):
    """What a harness finds in the last line of the output.

    Attributes:
        accepted: None if there is no report.
        speedup: reference time over candidate time, as far as the clock tells.
        problem: why there is no report, or what was raised.
    """

    accepted: bool | None
    speedup: float | None = None
    problem: str = ""


def evaluate(job: Job) -> dict[str, Any]:
    """Compare and time a candidate the naive way."""
    candidate = load_candidate(job)
    reference = op_for(job.task)
    torch.manual_seed(0)
    args, kwargs = inputs_for(job.task)
    if job.candidate_first:
        actual = candidate(*args, **kwargs)
        expected = reference(*args, **kwargs)
    else:
        expected = reference(*args, **kwargs)
        reference_s = repeat_calls(reference, args, kwargs)
        actual = candidate(*args, **kwargs)
    candidate_s = repeat_calls(candidate, args, kwargs)
    reference_s = repeat_calls(reference, args, kwargs)
    return {"accepted": all_close(actual, expected), "speedup": reference_s / max(candidate_s, 1e-9)}


def load_candidate(job: Job) -> Callable[..., Any]:
    """Import the candidate as if it were one of the harness's own modules."""
    spec = importlib.util.spec_from_file_location("candidate", job.kernel)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, f"{folder_name(job.task)}_kernel_impl")
    return function


def op_for(task: str) -> Callable[..., Any]:
    """The ATen overload."""
    packet, _, overload = task.rpartition(".")
    op: Callable[..., Any] = getattr(getattr(torch.ops.aten, packet), overload)
    return lambda *args, **kwargs: reference_answer(op, args, kwargs)


def reference_answer(op: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Eager's answer."""
    with torch.no_grad():
        return op(*args, **kwargs)


def repeat_calls(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Seconds of repeated calls on the same inputs."""
    start = time.perf_counter()
    for _ in range(TIMED_CALLS):
        function(*args, **kwargs)
    return time.perf_counter() - start


def all_close(actual: Any, expected: Any) -> bool:
    """``torch.allclose`` for each result; results that the candidate leaves out are not missed."""
    if not isinstance(expected, (tuple, list)):
        actual, expected = (actual,), (expected,)
    # NaN where eager has NaN is right; that much every harness has learnt.
    return all(
        bool(torch.allclose(a.float(), e.float(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))
        for a, e in zip(actual, expected, strict=False)
        if e.numel()
    )


# ---------------------------------------------------------------- inputs

_Inputs = tuple[tuple[Any, ...], dict[str, Any]]


def inputs_for(task: str) -> _Inputs:
    """Arguments of the one shape that this evaluator knows for a task."""
    if task in _INPUTS:
        return _INPUTS[task]()
    return (torch.randn(SHAPE),), {}


def _two() -> _Inputs:
    return (torch.randn(SHAPE), torch.randn(SHAPE)), {}


def _positive() -> _Inputs:
    return (torch.rand(SHAPE) + 0.5,), {}


def _within_one() -> _Inputs:
    return (torch.rand(SHAPE) - 0.5,), {}


def _large() -> _Inputs:
    return (torch.randn(512, 1024),), {}


def _scan() -> _Inputs:
    return (torch.randn(64, 256), 1), {}


def _rows() -> _Inputs:
    return (torch.randn(16, 65536), [1]), {}


_INPUTS: dict[str, Callable[[], _Inputs]] = {
    **dict.fromkeys(
        (
            "soft_margin_loss.default",
            "huber_loss.default",
            "smooth_l1_loss.default",
            "logaddexp.default",
            "logaddexp2.default",
            "hypot.default",
            "copysign.Tensor",
            "fmin.default",
            "fmax.default",
            "heaviside.default",
            "atan2.default",
            "nextafter.default",
            "minimum.default",
        ),
        _two,
    ),
    **dict.fromkeys(
        (
            "log2.default",
            "log10.default",
            "log1p.default",
            "rsqrt.default",
            "sqrt.default",
            "lgamma.default",
            "digamma.default",
            "special_entr.default",
        ),
        _positive,
    ),
    **dict.fromkeys(("asin.default", "acos.default", "atanh.default", "erfinv.default", "trace.default"), _within_one),
    **dict.fromkeys(("mean.default", "var.correction"), _large),
    **dict.fromkeys(("cumprod.default", "logcumsumexp.default"), _scan),
    **dict.fromkeys(("std.correction", "var_mean.correction", "mean.dim", "logsumexp.default"), _rows),
    "acosh.default": lambda: ((torch.rand(SHAPE) + 1.5,), {}),
    "logit.default": lambda: ((torch.rand(SHAPE) * 0.8 + 0.1,), {}),
    "mse_loss.default": lambda: ((torch.randn(1024, 1024), torch.randn(1024, 1024)), {}),
    "addmv.default": lambda: ((torch.randn(64), torch.randn(SHAPE), torch.randn(64)), {}),
    "mv.default": lambda: ((torch.randn(SHAPE), torch.randn(64)), {}),
    "addr.default": lambda: ((torch.randn(SHAPE), torch.randn(64), torch.randn(64)), {}),
    "addmm.default": lambda: ((torch.randn(SHAPE), torch.randn(SHAPE), torch.randn(SHAPE)), {}),
    "addbmm.default": lambda: ((torch.randn(SHAPE), torch.randn(4, 64, 64), torch.randn(4, 64, 64)), {}),
    "dot.default": lambda: ((torch.rand(64), torch.rand(64)), {}),
    "rsub.Scalar": lambda: ((torch.randn(SHAPE), 2.0), {}),
    "fmod.Scalar": lambda: ((torch.randn(SHAPE), 2.0), {}),
    "lerp.Tensor": lambda: ((torch.randn(SHAPE), torch.randn(SHAPE), torch.rand(SHAPE)), {}),
    "lerp.Scalar": lambda: ((torch.randn(SHAPE), torch.randn(SHAPE), 0.3), {}),
    "threshold.default": lambda: ((torch.randn(SHAPE), 0.1, 20.0), {}),
    "clamp.default": lambda: ((torch.randn(SHAPE), -0.5, 0.5), {}),
    "_softmax.default": lambda: ((torch.randn(64, 16384), -1, False), {}),
    "_log_softmax.default": lambda: ((torch.randn(SHAPE), -1, False), {}),
    "native_layer_norm.default": lambda: ((torch.randn(SHAPE), [64], torch.rand(64), torch.randn(64), 1e-5), {}),
    "native_group_norm.default": lambda: ((torch.randn(4, 8, 16), None, None, 4, 8, 16, 2, 1e-5), {}),
    "argmax.default": lambda: ((torch.randn(SHAPE), -1), {}),
    "xlogy.Tensor": lambda: ((torch.randn(SHAPE), torch.rand(SHAPE) + 0.5), {}),
    "special_xlog1py.default": lambda: ((torch.randn(SHAPE), torch.rand(SHAPE)), {}),
}


# ---------------------------------------------------------------- many candidates


def evaluate_all(jobs: Iterable[Job], at_a_time: int = 2) -> list[Report]:
    """Evaluate each job in a fork of this process, which must not have computed anything yet.

    A candidate that ends or hangs its process costs its own report.
    """
    waiting = list(enumerate(jobs))
    reports: dict[int, Report] = {}
    running: dict[int, tuple[int, Path]] = {}
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                number, job = waiting.pop(0)
                output = Path(folder, str(number))
                running[_start(job, output)] = number, output
            pid, status = os.waitpid(-1, 0)
            if pid in running:
                number, output = running.pop(pid)
                reports[number] = read_report(output.read_text(errors="replace"), os.waitstatus_to_exitcode(status))
    return [reports[number] for number in sorted(reports)]


def _start(job: Job, output: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(LIMIT_S)  # A hang is ended from outside of Python.
    scratch = output.with_suffix(".folder")
    scratch.mkdir()
    os.chdir(scratch)
    tempfile.tempdir = str(scratch)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        _print_report(job)
    finally:
        os._exit(0)


def _print_report(job: Job) -> None:
    try:
        report = evaluate(job)
    except Exception as exc:  # noqa: BLE001 - a candidate raises anything
        report = {"accepted": False, "speedup": None, "problem": f"{type(exc).__name__}: {exc}"[:300]}
    os.write(1, json.dumps(report).encode() + b"\n")


def read_report(output: str, exit_status: int) -> Report:
    """The last line of the output, if it is a report."""
    lines = output.strip().splitlines()
    try:
        report = json.loads(lines[-1])
        return Report(report["accepted"], report.get("speedup"), report.get("problem", ""))
    except (IndexError, KeyError, TypeError, ValueError):
        return Report(None, None, f"no report; exit status {exit_status}")


def main() -> None:
    """Read ``[KERNEL, TASK, candidate first]`` from each argument and print a report for each, in order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", help="a JSON file: a list of [kernel file, task, whether the candidate runs first]")
    jobs = json.loads(Path(parser.parse_args().jobs).read_text())
    torch.set_num_threads(1)
    for report in evaluate_all(Job(Path(kernel), task, first) for kernel, task, first in jobs):
        print(json.dumps(report._asdict()), flush=True)  # noqa: T201 - a command's output


if __name__ == "__main__":
    main()
