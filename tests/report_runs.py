"""Synthetic run directories: what a judge would have written, without judging anything."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from opsmith.core.environment import Environment
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import TaskKind, folder_name
from opsmith.core.run import Options, PlannedOp, RunDirectory, RunManifest, RunPlan, TimedCase
from opsmith.core.timing import Ceilings, Clock, ControlPair, Label, Timing, Work
from opsmith.core.verdict import ErrorFigures, Status, Verdict

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>bold</b> \x1b[31mred \u202etext"


def manifest(**changes: object) -> RunManifest:
    """The manifest of a finished run, with some fields changed."""
    record = RunManifest(
        command=("opsmith", "run", "--suite", "opinfo", "--backend", "./my kernels", "--device", "cpu"),
        options=Options(suite="opinfo", backend="./my kernels", device="cpu", dtypes=("f32", "bf16")),
        environment=Environment(
            opsmith="0.1.0",
            python="3.11.9",
            torch="2.13.0",
            triton="3.7.1",
            platform="Linux",
            cpu="A CPU",
            cpu_count=2,
            memory_gib=16.0,
            device="cpu",
            device_name="A CPU",
        ),
        sandbox=("process group", "memory watch"),
        started_utc="2026-11-21T10:00:00Z",
        finished_utc="2026-11-21T10:01:00Z",
        seed=1234,
        wall_s=60.0,
    )
    return msgspec.structs.replace(record, **changes)


def planned(
    op: str = "relu.default", cases: int = 2, *, error_cases: int = 0, answered: bool = True, schema: str | None = None
) -> PlannedOp:
    """An op of the plan, answered by a Triton file unless told otherwise."""
    folder = folder_name(op)
    file = f"{folder}_implementation_v1.py"
    kernel = Kernel(
        task=op,
        backend="directory",
        loader=Loader.FILE,
        entry=f"{file}:{folder}_kernel_impl",
        dsl="triton",
        root=f"/home/someone/my kernels/{folder}",
        files={file: "0" * 16},
    )
    return PlannedOp(
        op=op,
        schema=schema or f"aten::{op}(Tensor self) -> Tensor",
        cases=cases,
        error_cases=error_cases,
        kernel=kernel if answered else None,
        kernel_hash=kernel.content_hash if answered else None,
    )


def planned_module(task: str = "L1/1_Softmax", *, answered: bool = True) -> PlannedOp:
    """A module problem of the plan, or one sample of it, with one case."""
    return msgspec.structs.replace(planned(task, 1, answered=answered, schema="problem.py"), kind=TaskKind.MODULE)


def verdict(op: str = "relu.default", number: int = 0, status: Status = Status.PASSED, **changes: object) -> Verdict:
    """The verdict on case ``number`` of an op."""
    record = Verdict(
        op=op,
        case=f"opinfo:{op}:f32:sample:{number}:0",
        content_hash=f"{number:016x}",
        dtype="f32",
        kernel="0" * 16,
        status=status,
        inputs=f"(T([{number + 1}, 3], f32),)",
        comparison="value",
    )
    return msgspec.structs.replace(record, **changes)


def timing(speedup: float, quantity: str = "K", *, candidate_us: float = 10.0, **changes: object) -> Timing:
    """A timing with this speedup, some fields changed."""
    record = Timing(
        reference_us=candidate_us * speedup,
        candidate_us=candidate_us,
        speedup=speedup,
        low=speedup * 0.98,
        high=speedup * 1.02,
        confidence=0.99,
        blocks=20,
        calls_per_block=100,
        quantity=quantity,
        label=Label.SAME if abs(speedup - 1) < 0.03 else Label.FASTER if speedup > 1 else Label.SLOWER,
        noise=0.01,
    )
    return msgspec.structs.replace(record, **changes)


def timed_case(of: Verdict, **changes: object) -> TimedCase:
    """What the clock found about the case of a verdict."""
    record = TimedCase(op=of.op, case=of.case, kernel=of.kernel, timings=of.timings)
    return msgspec.structs.replace(record, **changes)


def ceilings() -> Ceilings:
    """What an H200 reaches."""
    return Ceilings(
        device="NVIDIA H200",
        copy_gbps=4350.0,
        matmul_tflops={"bf16": 780.0, "f32": 52.0},
        l2_bytes=50 << 20,
        measured_utc="2026-11-20T09:00:00Z",
        torch="2.13.0",
    )


def clock(**changes: object) -> Clock:
    """The clock of a run on an H200, some fields changed."""
    pair = ControlPair(
        call="add.Tensor (T([1024], bf16), T([1024], bf16))",
        quantity="K",
        time_us=2.4,
        speedup=1.002,
        low=0.99,
        high=1.01,
    )
    larger = msgspec.structs.replace(
        pair, call="mm.default (T([4096, 4096], bf16), T([4096, 4096], bf16))", time_us=191.3
    )
    record = Clock(
        control=(
            pair,
            larger,
            msgspec.structs.replace(pair, quantity="E", time_us=6.1, speedup=0.987, low=0.97, high=1.0),
        ),
        noise={"K": 0.008, "E": 0.021},
        trip_us=38.2,
        node_us=0.95,
        ceilings=ceilings(),
        throttling="the reasons that NVML gives",
    )
    return msgspec.structs.replace(record, **changes)


def figures(max_rel: float, *, mismatched: int = 0) -> ErrorFigures:
    """Error figures under float32's tolerance."""
    return ErrorFigures(
        max_abs=max_rel / 10, max_rel=max_rel, mismatched=mismatched, elements=4096, rtol=1.3e-6, atol=1e-5
    )


def write_run(
    path: Path,
    ops: Sequence[PlannedOp],
    verdicts: Iterable[Verdict],
    run_manifest: RunManifest | None = None,
    *,
    timed: Iterable[TimedCase] = (),
) -> RunDirectory:
    """Write a run directory as a judge leaves it."""
    path.mkdir(parents=True)
    run = RunDirectory(path)
    run.write("run.json", run_manifest or manifest())
    run.write("plan.json", RunPlan(ops=tuple(ops)))
    for name, records in (("verdicts", verdicts), ("timings", timed)):
        with run.appender(f"{name}.jsonl") as append:
            for record in records:
                append(record)
    return run


def write_timed_run(path: Path, *, ops: int = 30, cases: int = 12, **changes: object) -> RunDirectory:
    """A run on an H200 whose cases span eight decades of size: every third op a product, the others move bytes."""
    rng = random.Random(0)
    plan = [planned(f"{'mm' if number % 3 == 0 else 'move'}_{number:02d}.default", cases) for number in range(ops)]
    verdicts, timed = [], []
    for number, (op, case) in enumerate(itertools.product(plan, range(cases))):
        work, least_us = _product(rng) if op.op.startswith("mm") else _movement(rng)
        found = _timed_verdict(op.op, case, least_us, rng)
        verdicts.append(found)
        timed.append(
            timed_case(
                found,
                work=work,
                first_call_s=rng.uniform(0.02, 0.4),
                peak_bytes=work.traffic_bytes * (3 if number % 90 == 0 else 1),
                reference_peak_bytes=work.traffic_bytes,
            )
        )
    environment = msgspec.structs.replace(manifest().environment, device="cuda", device_name="NVIDIA H200")
    options = Options(suite="traces", backend="./my kernels", device="cuda", dtypes=("recorded",), timing="quick")
    fields = {"environment": environment, "options": options, "clock": clock(), **changes}
    return write_run(path, plan, verdicts, manifest(**fields), timed=timed)


def _product(rng: random.Random) -> tuple[Work, float]:
    """A dense product of three sides, and the least time for it, microseconds."""
    m, n, k = (1 << rng.randrange(3, 13) for _ in range(3))
    dtype, width = rng.choice([("bf16", 2), ("f32", 4)])
    moved, flops = width * (m * k + k * n + m * n), 2 * m * n * k
    work = Work(least_bytes=moved, traffic_bytes=moved, matmul_flops=flops, matmul_dtype=dtype)
    return work, max(moved / ceilings().copy_gbps / 1e3, flops / ceilings().matmul_tflops[dtype] / 1e6)


def _movement(rng: random.Random) -> tuple[Work, float]:
    moved = int(10 ** rng.uniform(1.5, 9.5))
    # What fits into the cache moves faster than a large copy.
    rate = ceilings().copy_gbps * (1.6 if moved < ceilings().l2_bytes else 1.0)
    return Work(least_bytes=moved, traffic_bytes=moved), moved / rate / 1e3


def _timed_verdict(op: str, number: int, least_us: float, rng: random.Random) -> Verdict:
    candidate_us = 1.5 + least_us / rng.uniform(0.5, 0.95)
    speedup_k = 2 ** rng.choice([rng.gauss(0, 0.01), rng.gauss(0.3, 0.6)])
    launch_us = rng.uniform(5, 9)
    call_us = max(launch_us, candidate_us)
    speedup_e = max(5.1, candidate_us * speedup_k) / call_us
    percent = 100 * least_us / candidate_us
    times: tuple[Timing, ...] = (
        timing(speedup_k, "K", candidate_us=candidate_us, percent_of_floor=percent, node_us=0.95),
        timing(speedup_e, "E", candidate_us=call_us),
    )
    if rng.random() < 0.1:
        times = tuple(msgspec.structs.replace(each, label=Label.UNDECIDED) for each in times)
    return verdict(op, number, figures=figures(2 ** rng.gauss(-22, 1)), timings=times)


def write_large_run(path: Path, *, ops: int = 1_000, cases: int = 30) -> RunDirectory:
    """A run of the size of a whole suite: most ops pass, some fail in every way, some have no kernel."""
    plan = [
        planned(name, cases, error_cases=2, answered=number % 9 != 0, schema=schema)
        for number, (name, schema) in enumerate(_overloads(ops))
    ]
    rng = random.Random(0)
    return write_run(path, plan, (each for number, op in enumerate(plan) for each in _verdicts_of(op, number, rng)))


def _overloads(count: int) -> Iterable[tuple[str, str]]:
    """Names and schemas of every variant in turn."""
    for number in range(count):
        packet = f"op_{number:04d}"
        yield (
            (f"{packet}.default", f"aten::{packet}(Tensor self) -> Tensor"),
            (f"{packet}_.default", f"aten::{packet}_(Tensor(a!) self) -> Tensor(a!)"),
            (f"{packet}_backward.default", f"aten::{packet}_backward(Tensor grad_output) -> Tensor"),
            (f"{packet}.out", f"aten::{packet}.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"),
            (f"{packet}.view", f"aten::{packet}.view(Tensor(a) self, int[] size) -> Tensor(a)"),
        )[number % 5]


def _verdicts_of(op: PlannedOp, index: int, rng: random.Random) -> Iterable[Verdict]:
    if op.kernel is None:
        return
    fails = index % 7 == 1
    speed = 2 ** rng.gauss(0.1, 0.7)
    for number in range(op.cases):
        if fails and number % 4 == 0:
            yield _failure(op.op, number, rng, kind=index // 7 + number // 8)
        else:
            times = () if fails else (timing(speed, "K"), timing(speed * 0.9, "E"))
            yield verdict(op.op, number, figures=figures(2 ** rng.gauss(-22, 1)), timings=times)
    for number in range(op.error_cases):
        raises = index % 50 != 2
        yield verdict(op.op, 1000 + number, Status.PASSED if raises else Status.DID_NOT_RAISE, expects_error=True)


def _failure(op: str, number: int, rng: random.Random, *, kind: int) -> Verdict:
    failures = [status for status in Status if status is not Status.PASSED]
    return verdict(
        op,
        number,
        failures[kind % len(failures)],
        detail=f"element {number} is 3.1 instead of 2.9: {HOSTILE}",
        evidence=(f"Traceback of case {number}: {HOSTILE}", "RuntimeError: " + "x" * 300),
        figures=figures(2 ** rng.gauss(-4, 3), mismatched=7),
    )
