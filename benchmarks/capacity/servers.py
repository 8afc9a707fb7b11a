"""How many kernels a second several servers judge from one database, where judging is waiting.

    python -m benchmarks.capacity.servers --db postgresql://USER@HOST/NAME -o FILE

Each server is a process with the service's own judging threads; its judge waits for some tenths of a second in place of
a device and then tells the verdicts of a kernel that is right. So what is measured is everything around the device:
claims, renewals, and what is written. The database has to be an empty one; without ``--db`` it is a SQLite file.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from benchmarks.capacity.queue_cycles import SUITE, TASK, enqueue, passed, planned
from sqlalchemy import func, select
from tests.campaigns import ReadingSession

from opsmith.backends.file import KernelFile
from opsmith.core.environment import cpu_name
from opsmith.core.kernel import Kernel
from opsmith.core.run import PlannedOp, write_atomically
from opsmith.core.task import Task
from opsmith.report.scores import summarise_op
from opsmith.serve.judging import Judging, rules_of
from opsmith.serve.live import Live
from opsmith.serve.metrics import Metrics
from opsmith.serve.store.database import Database
from opsmith.serve.store.schema import State, judgements, verdicts
from opsmith.session import Judged, Watch

#: Servers, and kernels that each judges at a time.
POINTS = ((1, 1), (1, 4), (2, 4), (4, 4), (2, 16))
LOOK_S = 0.05


class WaitingJudge(ReadingSession):
    """Stands in for the session of a device.

    Args:
        seconds: what a kernel takes.
        cases: of the task.
    """

    clock = None
    void: Mapping[str, str] = {}

    def __init__(self, seconds: float, cases: int) -> None:
        super().__init__((TASK,))
        self._seconds, self._verdicts = seconds, passed(cases)

    def kernel_in(self, source: Path, task: str) -> Kernel:
        """As the session's own."""
        found = KernelFile(source).kernel_for(Task(name=task, op=self.tasks[task].op, suite=SUITE))
        assert found is not None
        return found

    def planned(self, task: str, kernel: Kernel | None) -> PlannedOp:  # noqa: ARG002 - There is one task.
        """The task."""
        return planned(len(self._verdicts))

    def judge_kernel(
        self,
        task: str,
        kernel: Kernel,
        *,
        most_s: float,  # noqa: ARG002 - It never takes longer.
        told: Any = None,
        watch: Watch | None = None,  # noqa: ARG002 - Nobody reads it.
    ) -> Judged:
        """Wait, and pass every case."""
        time.sleep(self._seconds)
        for verdict in self._verdicts:
            told(verdict)
        return Judged(
            task=task,
            kernel_hash=kernel.content_hash,
            dsl="torch",
            summary=summarise_op(self.planned(task, kernel), self._verdicts),
            verdicts=(),
            device_s=self._seconds,
        )


def main() -> int:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db")
    parser.add_argument("--seconds", type=float, default=0.5, help="that a kernel takes")
    parser.add_argument("--verdicts", type=int, default=37, help="of each kernel")
    parser.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        url = asked.db or f"sqlite:///{place}/service.sqlite"
        points = [measured(url, servers, jobs, asked.seconds, asked.verdicts) for servers, jobs in POINTS]
    record = {
        "database": "postgresql" if asked.db else "sqlite",
        "judging_s": asked.seconds,
        "verdicts_a_kernel": asked.verdicts,
        "points": points,
        "cpu": cpu_name(),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "load_of_the_machine": os.getloadavg(),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }
    write_atomically(asked.out, (json.dumps(record, indent=2) + "\n").encode())
    sys.stdout.write(json.dumps(points) + "\n")
    return 0


def measured(
    url: str, servers: int, jobs: int, seconds: float, cases: int, *, work_s: float = 10.0
) -> dict[str, float]:
    """One point: so many seconds' work for so many servers, from when all are ready until it is judged."""
    kernels = int(servers * jobs * work_s / seconds)
    context = multiprocessing.get_context("spawn")
    ready, done = context.Barrier(servers + 1), context.Barrier(servers + 1)
    with contextlib.closing(Database(url)) as database, tempfile.TemporaryDirectory() as place:
        database.migrate()
        processes = [
            context.Process(target=_serve, args=(url, f"{place}/{number}", jobs, seconds, cases, ready, done))
            for number in range(servers)
        ]
        for process in processes:
            process.start()
        before = _judged(database)
        ready.wait()
        started = time.monotonic()
        enqueue(database, kernels, rules=rules_of(WaitingJudge(seconds, cases)))
        while _judged(database) < before + kernels:
            time.sleep(LOOK_S)
        took = time.monotonic() - started
        done.wait()
        for process in processes:
            process.join()
        with database.reading() as connection:
            told = connection.execute(select(func.count()).select_from(verdicts)).scalar_one()
        assert told == (before + kernels) * cases, "something was judged twice, or is missing"
    return {"servers": servers, "jobs": jobs, "kernels": kernels, "seconds": round(took, 2)}


def _judged(database: Database) -> int:
    with database.reading() as connection:
        judged = select(func.count()).where(judgements.c.state == State.JUDGED)
        return int(connection.execute(judged).scalar_one())


def _serve(url: str, folder: str, jobs: int, seconds: float, cases: int, ready: Barrier, done: Barrier) -> None:
    failures: list[BaseException] = []
    with contextlib.closing(Database(url)) as database:
        judging = Judging(
            database,
            {SUITE: WaitingJudge(seconds, cases)},
            jobs=jobs,
            live=Live(),
            metrics=Metrics(database),
            folder=Path(folder),
            most_s=60.0,
            failed=failures.append,
        )
        with judging:
            ready.wait()
            done.wait()
    assert not failures, failures


if __name__ == "__main__":
    sys.exit(main())
