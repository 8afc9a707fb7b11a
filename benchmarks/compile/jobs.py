"""Jobs in a worker process, a line of a record for each: what both benchmarks of compiled models run on.

A job that takes the worker down, or too long, costs its own line. The record is append-only; jobs whose lines are
there are not done again.
"""

from __future__ import annotations

import argparse
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec
from benchmarks.compile.subjects import names


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


def selected(ops: str, problems: Path) -> list[str]:
    """The models that wildcards with commas between them match."""
    patterns = ops.split(",")
    return [name for name in names(problems) if any(fnmatchcase(name, pattern) for pattern in patterns)]


def coordinate(
    module: str,
    options: argparse.Namespace,
    jobs: Sequence[Job],
    do: Callable[[Job, argparse.Namespace], Record],
    died: Callable[[Job, str], Record],
    kind: type[Record],
) -> list[Record]:
    """Have jobs done until the minutes are over; returns the whole record.

    Args:
        module: the benchmark, which the worker runs again with ``--worker``.
        options: its options: ``out``, ``minutes``, ``timeout`` and ``worker`` among them.
        jobs: all that are asked.
        do: what the worker does with one.
        died: the line of one that took the worker down.
        kind: of the record's lines.
    """
    if options.worker:
        for line in sys.stdin:
            *parts, model = line.split()
            _append(options.out, do(Job(model, tuple(parts)), options))
            print("done", flush=True)
        return []
    done = {_job_of(line) for line in read(options.out, kind)}
    waiting = [job for job in jobs if job not in done]
    deadline, worker = time.monotonic() + 60 * options.minutes, None
    for place, job in enumerate(waiting):
        if time.monotonic() > deadline:
            print(f"out of time: {len(waiting) - place} left; the same command continues", file=sys.stderr)
            break
        if worker is None or worker.poll() is not None:
            command = [sys.executable, "-m", module, "--worker", *sys.argv[1:]]
            worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - ourselves
        print(f"{place + 1}/{len(waiting)} {job}", file=sys.stderr, flush=True)
        if not _ask(worker, job, options.timeout):
            worker.kill()
            worker.wait()
            _append(options.out, died(job, f"died, or took over {options.timeout:.0f} s"))
    if worker is not None and worker.stdin is not None:
        worker.stdin.close()
        worker.wait()
    return read(options.out, kind)


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


def _ask(worker: subprocess.Popen[bytes], job: Job, timeout_s: float) -> bool:
    """Whether the worker said in time that it is done."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write(f"{job}\n".encode())
        worker.stdin.flush()
    except BrokenPipeError:
        return False
    ready, _, _ = select.select([worker.stdout], [], [], timeout_s)
    return bool(ready) and worker.stdout.readline() == b"done\n"
