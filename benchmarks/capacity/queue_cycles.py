"""How many kernels a second the service's database takes, when judging itself takes no time.

    python -m benchmarks.capacity.queue_cycles --db postgresql://USER@HOST/NAME -o FILE
    python -m benchmarks.capacity.queue_cycles -o FILE

So many processes claim a judgement and complete it with its verdicts, again and again, for some seconds each: a cycle
is what one kernel costs the queue. The database has to be an empty one, on this machine; without ``--db`` it is a
SQLite file. Clients and database share the machine's cores, so seconds of processors say more than the rate: those of
the server, and those of PostgreSQL's process for each connection.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import multiprocessing
import os
import platform
import secrets
import sys
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

from opsmith.core.environment import cpu_name
from opsmith.core.run import PlannedOp, write_atomically
from opsmith.core.verdict import ErrorFigures, Status, Verdict
from opsmith.report.scores import summarise_by_dtype, summarise_op
from opsmith.serve.store import queue
from opsmith.serve.store.database import Database
from opsmith.serve.store.submissions import Candidate, SuiteFacts, Wanted, submit
from opsmith.serve.store.tokens import Role, create_token

SUITE, TASK, RULES = "opinfo", "relu.default", "r"
WORKERS = (1, 2, 4)
#: Kernels of one request, and enough of them that no worker runs out.
BATCH, KERNELS = 500, 20_000
#: A kernel of some two kilobytes, of which no two are the same.
SOURCE = "# Kernel {0}.\n" * 150 + "def relu__default_kernel_impl(self):\n    return self\n"


def main() -> int:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db")
    parser.add_argument("--verdicts", type=int, default=37, help="of each kernel")
    parser.add_argument("--seconds", type=float, default=15.0, help="for each number of processes")
    parser.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        record = measured(asked.db or f"sqlite:///{place}/service.sqlite", asked.verdicts, asked.seconds)
    write_atomically(asked.out, (json.dumps(record, indent=2) + "\n").encode())
    sys.stdout.write(json.dumps(record["workers"]) + "\n")
    return 0


def measured(
    url: str, verdicts: int, seconds: float, *, workers: tuple[int, ...] = WORKERS, kernels: int = KERNELS
) -> dict[str, Any]:
    """The rates on an empty database."""
    with contextlib.closing(Database(url)) as database:
        database.migrate()
        started = time.monotonic()
        enqueue(database, kernels)
        submitted_per_s = kernels / (time.monotonic() - started)
    found = example(verdicts)
    return {
        "database": "sqlite" if url.startswith("sqlite") else "postgresql",
        "verdicts_a_kernel": verdicts,
        "bytes_a_verdict": sum(len(str(row["record"])) for row in queue.verdict_rows(0, found)) / max(verdicts, 1),
        "submitted_per_s": round(submitted_per_s, 1),
        "workers": {str(count): cycled(url, found, count, seconds) for count in workers},
        "cpu": cpu_name(),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "load_of_the_machine": os.getloadavg(),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }


def enqueue(database: Database, kernels: int, *, rules: str = RULES) -> None:
    """Submit so many kernels, all of them different."""
    token, _ = create_token(database, f"capacity {secrets.token_hex(4)}", Role.SUBMITTER)
    about = SuiteFacts(tasks_asked=1, device_name="none", facts="{}", rules=rules)
    for first in range(0, kernels, BATCH):
        numbers = range(first, min(first + BATCH, kernels))
        candidates = tuple(Candidate(task=TASK, source=SOURCE.format(number)) for number in numbers)
        submit(
            database, token, Wanted(suite=SUITE, run="r", contender="c", candidates=candidates), about, request_key=None
        )


def passed(count: int) -> tuple[Verdict, ...]:
    """Verdicts as a judge finds them."""
    return tuple(
        Verdict(
            op=TASK,
            case=f"opinfo:relu:bf16:sample:{number}:0",
            content_hash="0123456789abcdef",
            dtype="bf16",
            kernel="0123456789abcdef",
            status=Status.PASSED,
            figures=ErrorFigures(
                max_abs=1e-3, max_rel=1e-3, mismatched=0, elements=4096, rtol=1.6e-2, atol=1e-5, oracle_excused=0
            ),
            inputs="(T([64, 64], bf16),), {}",
            comparison="value",
        )
        for number in range(count)
    )


def planned(cases: int) -> PlannedOp:
    """The task."""
    return PlannedOp(op=TASK, schema="", cases=cases, error_cases=0, kernel=None, kernel_hash=None)


def example(verdicts: int) -> queue.Found:
    """What a judge finds about a kernel that passes so many cases."""
    told = passed(verdicts)
    return queue.Found(
        kernel_hash="k",
        dsl="triton",
        summary=summarise_op(planned(verdicts), told),
        by_dtype=summarise_by_dtype(planned(verdicts), told),
        detail="",
        verdicts=told,
        timed=(),
        device_s=1.0,
    )


class Share(NamedTuple):
    """What one process did: cycles, and seconds of processors that it and its connection's process took."""

    cycles: int
    server_s: float
    database_s: float


def cycled(url: str, found: queue.Found, workers: int, seconds: float) -> dict[str, float]:
    """What so many processes do together, each as a server of its own."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(workers), context.SimpleQueue()
    processes = [context.Process(target=_work, args=(url, found, seconds, barrier, results)) for _ in range(workers)]
    for process in processes:
        process.start()
    shares = [results.get() for _ in processes]
    for process in processes:
        process.join()
    cycles = sum(share.cycles for share in shares)
    return {
        "cycles_per_s": round(cycles / seconds, 1),
        "server_cpu_ms": round(sum(share.server_s for share in shares) / cycles * 1e3, 2),
        "database_cpu_ms": round(sum(share.database_s for share in shares) / cycles * 1e3, 2),
    }


def _work(url: str, found: queue.Found, seconds: float, barrier: Barrier, results: Any) -> None:
    with contextlib.closing(Database(url)) as database:
        backend = _backend(database)
        barrier.wait()
        before, own, cycles = _cpu_s(backend), time.process_time(), 0
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            claimed = queue.claim_next(database, SUITE, RULES)
            assert claimed is not None, "the queue ran empty: more kernels are needed"
            assert queue.complete(database, claimed, found)
            cycles += 1
        results.put(Share(cycles, time.process_time() - own, _cpu_s(backend) - before))


def _backend(database: Database) -> int | None:
    """The process of PostgreSQL that serves the one connection of this process."""
    if database.is_sqlite:
        return None
    with database.writing() as connection:
        return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


def _cpu_s(process: int | None) -> float:
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
