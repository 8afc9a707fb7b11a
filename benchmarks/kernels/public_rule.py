"""Which overloads the public harness's rule asks of OpInfo, and how runs of suite opinfo answer them.

    python -m benchmarks.kernels.public_rule --device cuda -o FILE RUN [RUN...]

The rule, as BackendBench has it: of every OpInfo for that dtype whose name has no dot, or begins with
``nn.functional.``, a sample counts if its function dispatches exactly one op, and if that overload, called with the
function's own arguments, gives the same result. That decides which overloads are counted here; on which calls they
are judged is opsmith's own suite, which asks every call that the samples dispatch, in-place, ``out=`` and gradients
included. Of several runs in one dtype a later one counts for the ops that it asked, so that ops may be judged again.
The table lists the overloads of the rule that were not found correct, and why.
"""

from __future__ import annotations

import argparse
import functools
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from benchmarks.models.records import command_of, environment_of, write
from benchmarks.records import read
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._python_dispatch import TorchDispatchMode

from opsmith.calls.recording import op_name
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.environment import Environment
from opsmith.core.run import OpSummary, RunDirectory, Summary


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs in one dtype found about the overloads of the rule.

    Attributes:
        dtype: short name.
        asked: overloads that the rule names.
        answered: those with a kernel.
        correct: those of which every case passed; none of them declined, none fell back.
        not_correct: overload -> its statuses, ``{"no kernel": cases}`` without one.
        wider: asked, answered and correct overloads of the whole suite.
    """

    dtype: str
    asked: int
    answered: int
    correct: int
    not_correct: dict[str, dict[str, int]]
    wider: dict[str, int]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed."""

    command: tuple[str, ...]
    environment: Environment
    runs: tuple[str, ...]
    answers: tuple[Answers, ...]


class _Dispatched(TorchDispatchMode):
    """Notes which overloads are called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.overloads: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.overloads.append(func)
        return func(*args, **(kwargs or {}))


@functools.cache
def overloads_of_rule(dtype: str, device: str) -> frozenset[str]:
    """The overloads that the rule counts; see the module's docstring."""
    torch_dtype = getattr(torch, TORCH_NAMES[dtype])
    found: set[str] = set()
    for info in op_db:
        if info.supports_dtype(torch_dtype, device) and ("." not in info.name or "nn.functional" in info.name):
            found |= set(_overloads_of(info, torch_dtype, device))
    return frozenset(found)


def _overloads_of(info: OpInfo, dtype: torch.dtype, device: str) -> list[str]:
    torch.manual_seed(0)
    found = []
    try:
        for sample in info.sample_inputs(device, dtype):
            overload = _single_op(info, sample)
            if overload is not None:
                found.append(op_name(overload))
    except Exception as exc:  # noqa: BLE001 - an OpInfo's generator may raise anything
        sys.stderr.write(f"{info.name}: {type(exc).__name__}\n")
    return found


def _single_op(info: OpInfo, sample: Any) -> Any:
    """The one overload that a sample dispatches and that answers the function's own arguments; else None."""
    arguments = (sample.input, *sample.args)
    try:
        with _Dispatched() as dispatched:
            expected = info.op(*arguments, **sample.kwargs)
        if len(dispatched.overloads) != 1:
            return None
        (overload,) = dispatched.overloads
        torch.testing.assert_close(overload(*arguments, **sample.kwargs), expected, equal_nan=True)
    except Exception:  # noqa: BLE001 - where replaying fails, for whatever reason, the harness drops the sample
        return None
    return overload


def answers(dtype: str, per_op: Mapping[str, OpSummary], device: str) -> Answers:
    """What was found about the overloads of the rule in one dtype, among others."""
    named = sorted(overloads_of_rule(dtype, device))
    asked = {op: per_op[op] for op in named if op in per_op}
    answered = {op: found for op, found in asked.items() if found.answered}
    missing = {op: {"no kernel": 0} for op in named if op not in asked}
    return Answers(
        dtype=dtype,
        asked=len(named),
        answered=len(answered),
        correct=sum(found.accepted for found in answered.values()),
        not_correct=missing
        | {op: {"no kernel": found.cases} for op, found in asked.items() if not found.answered}
        | {op: found.statuses for op, found in answered.items() if not found.accepted},
        wider={
            "asked": len(per_op),
            "answered": sum(found.answered for found in per_op.values()),
            "correct": sum(found.accepted for found in per_op.values()),
        },
    )


def found_by_dtype(runs: Iterable[RunDirectory]) -> dict[str, dict[str, OpSummary]]:
    """Dtype -> op -> what the last run that asked it found."""
    found: dict[str, dict[str, OpSummary]] = {}
    for run in runs:
        (dtype,) = run.manifest().options.dtypes
        summary = msgspec.json.decode(read(run.path / "summary.json"), type=Summary)
        found.setdefault(dtype, {}).update(summary.per_op)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Count, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # What OpInfo's own samples warn of.
    by_dtype = found_by_dtype(map(RunDirectory.open, options.runs))
    record = Record(
        command=command_of("benchmarks.kernels.public_rule"),
        environment=environment_of(options.device),
        runs=tuple(run.name for run in options.runs),
        answers=tuple(answers(dtype, found, options.device) for dtype, found in by_dtype.items()),
    )
    write(options.out, record)
    for found in record.answers:
        print(
            f"{found.dtype}: {found.correct} correct of {found.asked}, {found.answered} answered; of all {found.wider}"
        )
        for op, statuses in found.not_correct.items():
            print(f"    {op:<40} {', '.join(f'{status} {count}' for status, count in statuses.items())}")


if __name__ == "__main__":
    main()
