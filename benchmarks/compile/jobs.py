"""Jobs in processes of their own, a line of a record for each: what both benchmarks of compiled models run on.

A job that takes its process down, or too long, costs its own line. The record is append-only; jobs whose lines are
there are not done again. Several are built and compiled at a time, and stand still while one is timed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec
import torch
from benchmarks.compile.subjects import names

from opsmith.runner.child.contexts import open_device
from opsmith.runner.machine.cores import timing_jobs
from opsmith.runner.machine.device_lock import DeviceLock, default_folder
from opsmith.runner.processes.isolated import NoAnswer
from opsmith.runner.processes.turns import Turn, Turns

#: What jobs fork from imports these. On a GPU the compiler is not among them: it may look for a device.
PRELOADED = ["benchmarks.compile.subjects", "opsmith.compile.report", "torch._dynamo"]
PRELOADED_ON_CPU = [*PRELOADED, "torch._inductor.compile_fx"]


class Job(NamedTuple):
    """A model, and what is done with it.

    Attributes:
        model: its name.
        parts: mode, and what else the benchmark tells apart.
    """

    model: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((*self.parts, self.model))


class Line(Protocol):
    """A record's line: it names its model and its mode."""

    @property
    def model(self) -> str: ...

    @property
    def mode(self) -> str: ...


Record = TypeVar("Record", bound=Line)
#: Does one job in this process; calls what it is given before it is timed, and what it does then is timed alone.
Do = Callable[[Job, argparse.Namespace, Callable[[], None]], msgspec.Struct]


def selected(ops: str, problems: Path) -> list[str]:
    """The models that wildcards with commas between them match."""
    patterns = ops.split(",")
    return [name for name in names(problems) if any(fnmatchcase(name, pattern) for pattern in patterns)]


def add_options(parser: argparse.ArgumentParser, *, minutes: float, timeout: float) -> None:
    """The options that :func:`have_done` reads."""
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=minutes, help="no job is begun later")
    parser.add_argument("--timeout", type=float, default=timeout, help="seconds of one job")
    parser.add_argument("--jobs", type=int, help="at a time; default: 1 on a CPU, else one a processor, 14 at most")


def have_done(
    jobs: Sequence[Job],
    options: argparse.Namespace,
    do: Do,
    died: Callable[[Job, str], Record],
    kind: type[Record],
    crowded: Callable[[Record], bool] = lambda _: False,
) -> list[Record]:
    """Have jobs done until the minutes are over; returns the whole record.

    Args:
        jobs: all that are asked.
        options: those of :func:`add_options` and ``device``.
        do: what is done with one; a function that other processes can import.
        died: the line of one whose process gave no answer.
        kind: of the record's lines.
        crowded: whether a job failed because others ran beside it; it is done again beside a quarter as many, and
            then by itself.
    """
    done = {_job_of(line) for line in read(options.out, kind)}
    waiting = [job for job in jobs if job not in done]
    on_cpu = options.device.startswith("cpu")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED_ON_CPU if on_cpu else PRELOADED)
    lock = DeviceLock(default_folder(), open_device(options.device).identity)
    deadline = time.monotonic() + 60 * options.minutes
    wide = options.jobs or timing_jobs(options.device)

    def lines(asked: Sequence[Job], at_a_time: int) -> Iterator[tuple[Job, Record]]:
        turns = Turns(context, lock, jobs=at_a_time, timeout_s=options.timeout)
        for number, answer in turns.answers(partial(_serve, do, options), _until(deadline, asked)):
            job = asked[number]
            print(f"{number + 1}/{len(asked)} {job}", file=sys.stderr, flush=True)
            yield (
                job,
                died(job, str(answer)) if isinstance(answer, NoAnswer) else msgspec.json.decode(answer, type=kind),
            )

    while waiting:
        put_off = []
        for job, line in lines(waiting, wide):
            if wide > 1 and crowded(line):
                put_off.append(job)
            else:
                _append(options.out, line)
        waiting, wide = put_off, max(1, wide // 4)
    return read(options.out, kind)


def lacks_memory(note: str) -> bool:
    """Whether a job's note says that the device had no memory left for it."""
    return "out of memory" in note.lower() or "OutOfMemoryError" in note


def read(path: Path, kind: type[Record]) -> list[Record]:
    """The lines of a record; a last one that was cut off is left out."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [msgspec.json.decode(line, type=kind) for line in lines if line.endswith(b"\n")]


def _job_of(line: Line) -> Job:
    precision = getattr(line, "precision", None)
    return Job(line.model, (line.mode,) if precision is None else (line.mode, precision))


def _append(path: Path, line: object) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


def _until(deadline: float, jobs: Sequence[Job]) -> Iterator[Job]:
    for place, job in enumerate(jobs):
        if time.monotonic() > deadline:
            print(f"out of time: {len(jobs) - place} left; the same command continues", file=sys.stderr)
            return
        yield job


def _serve(do: Do, options: argparse.Namespace, turn: Turn, job: Job) -> bytes:
    """Do a job in this process, which ends with it."""
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1  # Other jobs compile beside this one.
    return msgspec.json.encode(do(job, options, turn.take))
