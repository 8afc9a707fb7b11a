"""Many generated programs, compiled and compared with eager mode; ``python -m tests.differential.programs --help``.

Exits with 1 if one fails. With ``--mutation`` a fault is put back, and it exits with 0 exactly if that is found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import msgspec
import torch

#: Programs of a task, and tasks of a process: torch's own caches grow.
CHUNK, CHUNKS_OF_A_PROCESS = 25, 60
#: After which a process that says nothing is ended.
LONGEST_CHUNK_S = 900.0
#: For what has begun when no more programs begin.
GRACE_S = 20.0
#: Of programs that go through Inductor, how many change a pass's helper.
STALE_SHARE = 10
#: Failures of one worker's chunk that are made small, and seconds for each.
MOST_SHRUNK, SHRINKING_S = 3, 45.0
#: A way in which a program runs.
ATEN, INDUCTOR, STALE = "aten", "inductor", "stale"


class Task(msgspec.Struct, frozen=True):
    """Programs of one worker.

    Attributes:
        seed: of the campaign.
        first: index.
        count: of programs.
        way: ``aten``, ``inductor`` or ``stale``.
        mutation: the name of a fault, or None.
    """

    seed: int
    first: int
    count: int
    way: str
    mutation: str | None


class Failure(msgspec.Struct, frozen=True):
    """A program that fails, as text that runs."""

    seed: int
    index: int
    way: str
    detail: str
    source: str


@dataclass
class Tally:
    """What came of some programs.

    Attributes:
        kinds: of verdicts.
        features: programs that have them.
        fired: programs in which a pass rewrote something.
        reasons: for which programs were discarded, or differ without passes as well.
        failures: in full.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    features: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("kinds", "features", "fired", "reasons"):
            getattr(self, name).update(getattr(other, name))
        self.failures += other.failures

    @property
    def programs(self) -> int:
        """How many ran."""
        return sum(self.kinds.values())


# ---------------------------------------------------------------- a worker


def run_task(task: Task, *, shrink: bool = True) -> Tally:
    """Run programs one after the other."""
    from tests.differential.faults import FAULTS, without_thresholds
    from tests.differential.grammar import program_at

    tally = Tally()
    fault = FAULTS[task.mutation] if task.mutation else contextlib.nullcontext
    with without_thresholds():
        for index in range(task.first, task.first + task.count):
            program = program_at(task.seed, index)
            with fault():
                verdict = _verdict(program, task.way, index)
            tally.kinds[verdict.kind] += 1
            tally.features.update(program.features | {task.way} | ({"special"} if program.special else set()))
            tally.fired.update(verdict.fired.keys())
            if verdict.kind in {"discarded", "shared"}:
                tally.reasons[f"{verdict.kind}: {_first_words(verdict.detail)}"] += 1
            if verdict.kind == "failed" and task.mutation and _verdict(program, task.way, index).kind == "failed":
                continue  # Not because of the fault that was put back.
            if verdict.kind == "failed":
                shrunk = shrink and len(tally.failures) < MOST_SHRUNK
                with fault():
                    tally.failures.append(_failure(program, task, index, verdict.detail, shrink=shrunk))
    return tally


def _verdict(program: Any, way: str, index: int) -> Any:
    from tests.differential.running import check
    from tests.differential.stale import check_stale

    return check_stale(program, index) if way == STALE else check(program, inductor=way == INDUCTOR)


def _failure(program: Any, task: Task, index: int, detail: str, *, shrink: bool) -> Failure:
    from tests.differential.grammar import repro_of
    from tests.differential.shrinking import shrunk
    from tests.differential.stale import with_an_addition

    kind = _kind(detail)
    if task.way == STALE:
        program = with_an_addition(program)

    def fails(one: Any) -> bool:
        verdict = _verdict(one, task.way, index)
        return verdict.kind == "failed" and _kind(verdict.detail) == kind

    if shrink and task.way != STALE:
        program = shrunk(program, fails, seconds=SHRINKING_S)
        detail = _verdict(program, task.way, index).detail or detail
    return Failure(task.seed, index, task.way, detail[:2000], repro_of(program))


def _kind(detail: str) -> str:
    """A failure's kind stays what it is while a program is made smaller."""
    if " is undone: " in detail:
        return detail.partition(" is undone: ")[0]
    return "error" if detail.startswith("error") else "values"


def _first_words(detail: str) -> str:
    return " ".join(detail.split())[:90]


def _worker(connection: Connection) -> None:
    import logging

    torch.set_num_threads(1)
    logging.getLogger("opsmith").setLevel(logging.CRITICAL)
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    while True:
        task = connection.recv()
        if task is None:
            return
        connection.send(run_task(task))


# ---------------------------------------------------------------- the campaign


@dataclass
class _Process:
    process: Any
    connection: Connection
    task: Task | None = None
    since: float = 0.0
    done: int = 0


class Campaign:
    """Tasks spread over processes.

    Args:
        jobs: processes.
        seconds: after which no task begins, or None.
        stop_at_failure: whether a failure ends it.
    """

    def __init__(self, *, jobs: int, seconds: float | None, stop_at_failure: bool) -> None:
        self.tally = Tally()
        self._jobs, self._stop_at_failure = jobs, stop_at_failure
        self._began = time.monotonic()
        self._end = self._began + seconds if seconds is not None else float("inf")
        self._context = multiprocessing.get_context("spawn")
        self._said = 0.0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def run(self, tasks: Iterator[Task]) -> None:
        """Run all tasks, or those for which there is time."""
        processes = [self._start() for _ in range(self._jobs)]
        try:
            busy = [one for one in processes if self._give(one, tasks)]
            while busy:
                for one in self._answered(busy):
                    busy.remove(one)
                    fresh = self._taken(one)
                    processes[processes.index(one)] = fresh
                    if self._give(fresh, tasks):
                        busy.append(fresh)
                self._say()
        finally:
            for one in processes:
                one.process.kill()
            for one in processes:
                self._stop(one)

    def _start(self) -> _Process:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_worker, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return _Process(process, ours)

    def _stop(self, one: _Process) -> None:
        with contextlib.suppress(OSError):
            one.connection.send(None)
        one.process.join(0 if one.task is not None else 5)
        one.process.kill()
        one.process.join()
        one.connection.close()

    def _give(self, one: _Process, tasks: Iterator[Task]) -> bool:
        if time.monotonic() > self._end or (self._stop_at_failure and self.tally.failures):
            return False
        one.task = next(tasks, None)
        if one.task is None:
            return False
        one.since = time.monotonic()
        with contextlib.suppress(OSError):
            one.connection.send(one.task)
        return True

    def _answered(self, busy: list[_Process]) -> list[_Process]:
        """Those that answered or ended, or that say nothing for too long."""
        ready = wait([one.connection for one in busy], timeout=5)
        late = time.monotonic() - LONGEST_CHUNK_S
        if time.monotonic() > self._end + GRACE_S:
            return busy
        return [one for one in busy if one.connection in ready or one.since < late]

    def _taken(self, one: _Process) -> _Process:
        """Count an answer, or a process's end, and return the process that goes on."""
        task = one.task
        assert task is not None
        try:
            if not one.connection.poll():
                raise EOFError
            found = one.connection.recv()
            self.tally.add(found)
            for failure in found.failures:  # At once: a campaign may be interrupted.
                sys.stderr.write(f"{shown(failure)}\n")
        except (EOFError, OSError):
            if time.monotonic() > self._end + GRACE_S:
                self.tally.kinds["cut off"] += task.count
                return one
            self._stop(one)
            text = f"the process ended with {one.process.exitcode} within programs {task.first} + {task.count}"
            self.tally.kinds["crashed"] += task.count
            self.tally.failures.append(Failure(task.seed, task.first, task.way, text, ""))
            return self._start()
        one.task = None
        one.done += 1
        if one.done < CHUNKS_OF_A_PROCESS:
            return one
        self._stop(one)
        return self._start()

    def _say(self) -> None:
        if self.seconds - self._said > 10:
            self._said = self.seconds
            rate = self.tally.programs / self.seconds
            kinds = ", ".join(f"{count} {kind}" for kind, count in self.tally.kinds.most_common())
            sys.stderr.write(f"{self.tally.programs} programs, {rate:.1f} a second: {kinds}\n")


def tasks_of(count: int, inductor: int, seed: int, mutation: str | None) -> Iterator[Task]:
    """Programs through ATen and through Inductor, in turns, and every tenth of these with a pass that changes."""
    left = {ATEN: count, INDUCTOR: inductor - inductor // STALE_SHARE, STALE: inductor // STALE_SHARE}
    if mutation == "stale":
        left = {ATEN: 0, INDUCTOR: 0, STALE: count}
    total, first = dict(left), dict.fromkeys(left, 0)
    while any(left.values()):
        way = max((one for one in left if left[one]), key=lambda one: left[one] / total[one])
        share = min(left[way], CHUNK if way == ATEN else 5)
        yield Task(seed, first[way], share, way, mutation)
        left[way] -= share
        first[way] += share


def shown(failure: Failure) -> str:
    """A failure as source that runs by itself, under what is wrong."""
    place = f"# seed {failure.seed}, index {failure.index}, {failure.way}"
    return f"{place}\n# {failure.detail[:600]!r}\n{failure.source}"


def never_fired(tally: Tally) -> list[str]:
    """Built-in passes that had nothing to do in any program: the generator does not reach them."""
    from opsmith.compile.built_in import BUILT_IN

    return [one.name for one in BUILT_IN if not tally.fired[one.name]]


def record_of(campaign: Campaign, arguments: argparse.Namespace) -> Mapping[str, Any]:
    """The outcome as a JSON document."""
    tally = campaign.tally
    return {
        "command": " ".join(["python -m tests.differential.programs", *sys.argv[1:]]),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "seed": arguments.seed,
        "mutation": arguments.mutation,
        "seconds": round(campaign.seconds, 1),
        "programs": tally.programs,
        "verdicts": dict(tally.kinds.most_common()),
        "features": dict(tally.features.most_common()),
        "fired": dict(tally.fired.most_common()),
        "never_fired": never_fired(tally),
        "reasons": dict(tally.reasons.most_common(40)),
        "failures": msgspec.to_builtins(tally.failures),
    }


@contextlib.contextmanager
def own_caches() -> Iterator[None]:
    """One thread for each process, and an empty folder for what Inductor keeps."""
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        os.environ.update(OMP_NUM_THREADS="1", TORCHINDUCTOR_CACHE_DIR=folder, TORCHINDUCTOR_COMPILE_THREADS="1")
        yield


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="tests.differential.programs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="programs whose graphs ATen runs")
    parser.add_argument("--inductor", type=int, default=0, help="programs that go through Inductor")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, help="after which no more programs begin")
    parser.add_argument("--mutation", choices=["outputs", "batch_norm", "stale"], help="a fault that is put back")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file for the outcome")
    arguments = parser.parse_args()
    with own_caches():
        looking = arguments.mutation is not None
        campaign = Campaign(jobs=arguments.jobs, seconds=arguments.seconds, stop_at_failure=looking)
        campaign.run(tasks_of(arguments.count, arguments.inductor, arguments.seed, arguments.mutation))
    return _report(campaign, arguments)


def _report(campaign: Campaign, arguments: argparse.Namespace) -> int:
    record = record_of(campaign, arguments)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")
    failures = campaign.tally.failures
    for one in failures[:20]:
        sys.stdout.write(f"{shown(one)}\n")
    summary = {name: value for name, value in record.items() if name not in {"failures", "reasons", "features"}}
    sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    if arguments.mutation is not None:
        found = f"found after {campaign.tally.programs} programs" if failures else "not found"
        sys.stdout.write(f"the fault {arguments.mutation} was {found}\n")
        return 0 if failures else 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
