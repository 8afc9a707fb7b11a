"""Which models compile with the backend ``opsmith`` and are right, in inference and in training.

    python -m benchmarks.compile.coverage OUT.jsonl [--device cpu] [--ops 'L1/*,zoo/*'] [--modes inference,training]
        [--sizes small] [--problems DIR] [--minutes 60] [--timeout 180] [--jobs 1]

Every model is built twice with the same weights and inputs. A result is right if it is eager's at the default
tolerances of torch.testing; where it is not, if it is not further from float64's than three times what eager is. Each
line of OUT is one model in one mode. A second command continues a record; a model that takes the process down costs
its own lines.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from benchmarks.compile.jobs import Job, add_options, have_done, selected
from benchmarks.compile.subjects import Float64, inference, load, training
from benchmarks.models.records import environment_of
from torch import Tensor, nn

from opsmith.compile.report import collected
from opsmith.core.problems import SHIPPED_PROBLEMS

MODES = {"inference": inference, "training": training}


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """One model in one mode.

    Attributes:
        model: its name.
        mode: ``inference`` or ``training``.
        status: ``right``, ``wrong``, ``failed`` (it did not compile or run), ``skipped`` (eager does not run).
        note: what is wrong, or how it was found right where eager's tolerance was left.
        fired: pass -> how often it rewrote something.
        undone: what passes were taken back for.
        fallbacks: why graphs were compiled without opsmith's part.
        compile_s: seconds of the first call, or calls.
    """

    model: str
    mode: str
    status: str
    note: str = ""
    fired: dict[str, int] = {}
    undone: dict[str, str] = {}
    fallbacks: list[str] = []
    compile_s: float = 0.0


def cover(job: Job, options: argparse.Namespace, _take_turn: Callable[[], None]) -> Covered:
    """Compile one model and compare it with eager."""
    name, mode = job.model, job.parts[0]
    started = time.perf_counter()
    try:
        subject = load(name, small=options.sizes == "small", problems=options.problems)
        module = _in_mode(subject.module, mode).to(options.device)
        run = MODES[mode](subject, options.device)
        eager_module, twin = copy.deepcopy(module), copy.deepcopy(module)
        eager = run(eager_module)
    except Exception as exc:  # noqa: BLE001 - the problem's own code, which may need a package or a GPU
        return Covered(model=name, mode=mode, status="skipped", note=_line(exc))
    torch._dynamo.reset()
    with collected() as reports:
        try:
            found = run(torch.compile(twin, backend="opsmith", options={"fallback_random": True}))  # type: ignore[arg-type]
            complaint = _compare(eager, found) or _compare_buffers(eager_module, twin)
        except Exception as exc:  # noqa: BLE001 - the compiler's, which may raise anything
            return Covered(model=name, mode=mode, status="failed", note=_line(exc))
    note = ""
    if complaint:
        note = complaint
        if Float64(MODES[mode], subject, module, options.device).is_as_near(found, eager):
            complaint, note = "", f"as near to float64 as eager: {complaint}"
    fired: Counter[str] = Counter()
    for one in reports.passes:
        fired[one.name] += one.fired
    return Covered(
        model=name,
        mode=mode,
        status="wrong" if complaint else "right",
        note=note,
        fired=dict(+fired),
        undone={one.name: one.undone for one in reports.passes if one.undone},
        fallbacks=reports.fallbacks,
        compile_s=round(time.perf_counter() - started, 1),
    )


def _in_mode(module: nn.Module, mode: str) -> nn.Module:
    return module.train() if mode == "training" else module.eval()


def _compare(eager: list[Tensor], found: list[Tensor]) -> str:
    """What differs, in one line; empty if nothing does."""
    if len(eager) != len(found):
        return f"{len(found)} tensors instead of {len(eager)}"
    for place, (one, other) in enumerate(zip(eager, found, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"tensor {place} is {other.dtype} {tuple(other.shape)} instead of {one.dtype} {tuple(one.shape)}"
        try:
            torch.testing.assert_close(other, one, equal_nan=True)
        except AssertionError as exc:
            return f"tensor {place}: {_line(exc)}"
    return ""


def _compare_buffers(eager: nn.Module, twin: nn.Module) -> str:
    """Running statistics and other state that a call writes."""
    names = [name for name, _ in eager.named_buffers()]
    complaint = _compare(list(eager.buffers()), list(twin.buffers()))
    return f"buffers ({', '.join(names[:3])}...): {complaint}" if complaint else ""


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def summary(record: list[Covered]) -> str:
    """The table that the record comes to."""
    lines = []
    for mode in MODES:
        statuses = Counter(one.status for one in record if one.mode == mode)
        if statuses:
            lines.append(f"{mode}: {', '.join(f'{count} {status}' for status, count in statuses.most_common())}")
    fired: Counter[str] = Counter()
    for one in record:
        fired.update(one.fired.keys())
    lines.append("models in which a pass fired: " + ", ".join(f"{name} {count}" for name, count in fired.most_common()))
    lines.extend(
        f"{one.mode} {one.model}: {one.status}: {one.note}" for one in record if one.status in {"wrong", "failed"}
    )
    return "\n".join(lines)


def _died(job: Job, note: str) -> Covered:
    return Covered(model=job.model, mode=job.parts[0], status="failed", note=note)


def main() -> int:
    """Cover models and print a short table last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, minutes=60, timeout=180)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ops", default="*")
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--sizes", default="small", choices=("small", "full"))
    parser.add_argument("--problems", type=Path, default=SHIPPED_PROBLEMS)
    options = parser.parse_args()
    jobs = [Job(name, (mode,)) for mode in options.modes.split(",") for name in selected(options.ops, options.problems)]
    record = have_done(jobs, options, cover, _died, Covered)
    facts: Any = {"environment": environment_of(options.device), "table": summary(record).splitlines()}
    options.out.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")
    print(summary(record))
    return int(any(one.status in {"wrong", "failed"} for one in record))


if __name__ == "__main__":
    sys.exit(main())
