"""Fills a service's database with runs that nobody judged, to look at pages as large as they get."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import insert
from tests.report_runs import ceilings, figures, manifest, planned, timing, verdict

from opsmith.core.kernel import Kernel, Provenance
from opsmith.core.op import folder_name
from opsmith.core.run import TimedCase
from opsmith.core.timing import Work
from opsmith.core.verdict import Status, Verdict
from opsmith.generate.reward import why_not
from opsmith.report.scores import summarise_by_dtype, summarise_op
from opsmith.serve.store.database import Database
from opsmith.serve.store.queue import Found, cell_rows, summary_values, verdict_rows
from opsmith.serve.store.schema import State, cells, judgements, runs, sources, verdicts

DTYPES = ("bf16", "f16", "f32", "i64")
FAMILIES = ("add", "mul", "mm", "_softmax", "relu", "gelu", "native_layer_norm", "sum", "index_select", "convolution")
CONTENDERS = (
    "atlas-2",
    "borealis",
    "cirrus-mini",
    "delta-7b",
    "ember",
    "fathom",
    "granite-9",
    "halo",
    "iris",
    "juniper",
)
FAILING = [status for status in Status if status is not Status.PASSED]
SOURCE = '''"""{op}: one program a block of elements, 2 x 4 bytes of traffic an element."""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, tl.where(x > 0.0, x, 0.0), mask=inside)


def {folder}_kernel_impl(self):
    out = torch.empty_like(self)
    _kernel[(triton.cdiv(self.numel(), 1024),)](self, out, self.numel(), BLOCK=1024)
    return out
'''


def fill(database: Database, verdict_count: int, *, seed: int = 0) -> dict[str, int]:
    """Write runs with so many verdicts: one of most of them, one kernel with a tenth, and ten smaller runs.

    Returns:
        ``largest`` run, ``other`` run of the same suite, ``kernel`` with the most verdicts, ``failing`` kernel.
    """
    rng = random.Random(seed)  # noqa: S311 - for figures to look at
    tenth = verdict_count // 10
    other = 0
    for contender in CONTENDERS:
        other = _run(database, contender, f"{contender} on all ops")
        _kernels(database, other, rng, kernels=max(1, tenth // 40), cases=1, skill=rng.uniform(0.3, 0.95))
    largest = _run(database, "larch", "example kernels, all dtypes")
    _kernels(database, largest, rng, kernels=max(1, verdict_count * 8 // 10 // 100), cases=25, skill=0.75)
    kernel = _kernel(database, largest, "mm.default", rng, cases=max(2, tenth // len(DTYPES)), skill=1.0, timed=True)
    failing = _kernel(database, largest, "gelu.default", rng, cases=20, failing=(Status.WRONG_VALUE,), skill=0.0)
    _queue(database, _run(database, "kestrel", "campaign under way", suite="traces"), waiting=42)
    return {"largest": largest, "other": other, "kernel": kernel, "failing": failing}


def _queue(database: Database, run: int, *, waiting: int) -> None:
    """Kernels that nobody here judges, half of which were."""
    rows = [
        {
            "run_id": run,
            "suite": "traces",
            "task": f"op_{number}.default",
            "provenance": "{}",
            "state": State.QUEUED if number < waiting else State.JUDGED,
            "outcome": None if number < waiting else "PASSED",
            "accepted": None if number < waiting else True,
            "tries": 0,
            "created_utc": "2026-11-22T09:00:00.000+00:00",
        }
        for number in range(2 * waiting)
    ]
    with database.writing() as connection:
        connection.execute(insert(judgements), rows)


def _run(database: Database, contender: str, name: str, *, suite: str = "opinfo") -> int:
    told = manifest()
    environment = msgspec.structs.replace(told.environment, device="cuda", device_name="an example GPU")
    facts = {"options": told.options, "environment": environment, "sandbox": told.sandbox}
    made = insert(runs).values(
        name=name,
        contender=contender,
        suite=suite,
        device_name="an example GPU",
        tasks_asked=840,
        facts=msgspec.json.encode(facts).decode(),
        ceilings=msgspec.json.encode(ceilings()).decode(),
        created_utc="2026-11-22T09:00:00.000+00:00",
    )
    with database.writing() as connection:
        return int(connection.execute(made.returning(runs.c.id)).scalar_one())


def _kernels(database: Database, run: int, rng: random.Random, *, kernels: int, cases: int, skill: float) -> None:
    for number in range(kernels):
        family = FAMILIES[number % len(FAMILIES)]
        op = f"{family}.default" if number < len(FAMILIES) else f"{family}_{number // len(FAMILIES):02d}.default"
        _kernel(database, run, op, rng, cases=cases, skill=skill, timed=rng.random() < 0.8)


def _kernel(
    database: Database,
    run: int,
    op: str,
    rng: random.Random,
    *,
    cases: int,
    skill: float,
    timed: bool = False,
    failing: Sequence[Status] = FAILING,
) -> int:
    source = SOURCE.format(op=op, folder=folder_name(op))
    plan = planned(op, cases * len(DTYPES))
    kernel = plan.kernel
    assert isinstance(kernel, Kernel)
    status = Status.PASSED if rng.random() < skill else rng.choice(failing)
    timed = timed and status is Status.PASSED  # What is wrong is never timed.
    speed = 2 ** rng.gauss(0.25, 0.6)
    found, times = [], []
    for each, work in _cases(op, rng, cases=cases, status=status, speed=speed if timed else None):
        found.append(each)
        if each.timings:
            times.append(TimedCase(op=op, case=each.case, kernel="k", timings=each.timings, work=work))
    result = Found(
        kernel_hash=f"{rng.getrandbits(64):016x}",
        dsl="triton",
        summary=summarise_op(plan, found),
        by_dtype=summarise_by_dtype(plan, found),
        detail=why_not(found),
        verdicts=tuple(found),
        timed=tuple(times),
        device_s=rng.uniform(0.5, 4.0),
    )
    origin = Provenance(author="somebody", model="atlas-2", attempt=rng.randrange(4), license="BSD-3-Clause")
    with database.writing() as connection:
        name = f"{rng.getrandbits(256):064x}"
        connection.execute(insert(sources).values(hash=name, text=source))
        made = insert(judgements).values(
            run_id=run,
            suite="opinfo",
            task=op,
            source_hash=name,
            provenance=msgspec.json.encode(origin).decode(),
            state=State.JUDGED,
            tries=1,
            created_utc="2026-11-22T09:00:00.000+00:00",
            judged_utc="2026-11-22T09:00:09.000+00:00",
            **summary_values(result),
        )
        number = int(connection.execute(made.returning(judgements.c.id)).scalar_one())
        connection.execute(insert(verdicts), verdict_rows(number, result))
        connection.execute(insert(cells), cell_rows(number, run, op, result))
    return number


def _cases(
    op: str, rng: random.Random, *, cases: int, status: Status, speed: float | None
) -> Iterator[tuple[Verdict, Work]]:
    """Verdicts and the work of their cases; of a kernel that fails every third case has its status."""
    worst = rng.randrange(len(DTYPES))
    for place, dtype in enumerate(DTYPES):
        for number in range(cases):
            moved = int(10 ** rng.uniform(2, 9.3))
            product = op.startswith("mm")
            work = Work(
                least_bytes=moved,
                traffic_bytes=moved,
                matmul_flops=int(moved * 10 ** rng.uniform(0.5, 2.7)) if product else 0,
                matmul_dtype=("bf16" if dtype == "bf16" else "f32") if product else None,
            )
            fails = status is not Status.PASSED and number % 3 == 0 and place >= worst
            right: dict[str, Any] = {"figures": figures(2 ** rng.gauss(-22, 1)), "timings": _times(work, rng, speed)}
            wrong: dict[str, Any] = {
                "status": status,
                "detail": f"element [{number}, 3] is 3.1 instead of 2.9",
                "figures": figures(0.07, mismatched=7),
                "evidence": ("Traceback (most recent call last):", '  File "kernel.py", line 19, in kernel_impl'),
            }
            case = f"opinfo:{op.partition('.')[0]}:{dtype}:sample:{number}:0"
            inputs = f"(T([{number + 1}, 1024], {dtype}),)"
            yield verdict(op, number, dtype=dtype, case=case, inputs=inputs, **(wrong if fails else right)), work


def _times(work: Work, rng: random.Random, speed: float | None) -> tuple[object, ...]:
    if speed is None:
        return ()
    least_us = max(work.traffic_bytes / ceilings().copy_gbps / 1e3, work.matmul_flops / 780 / 1e6)
    kernel_us = 1.5 + least_us / rng.uniform(0.5, 0.95)
    ratio = speed * 2 ** rng.gauss(0, 0.2)
    call_us = max(kernel_us, rng.uniform(5, 9))
    percent = 100 * least_us / kernel_us
    return (
        timing(ratio, "K", candidate_us=kernel_us, percent_of_floor=percent, node_us=0.95),
        timing(max(5.1, kernel_us * ratio) / call_us, "E", candidate_us=call_us),
    )
