"""Many clients submit kernels, some of them hostile, while server and database connections are killed.

    python -m benchmarks.serve.clients -o FILE
    python -m benchmarks.serve.clients --db postgresql://USER@HOST/NAME -o FILE

Every client sends each of its requests until it is answered, with a key of its own. In the end every kernel must have
exactly one set of verdicts, right ones must be accepted, and hostile ones not. Exit status 1 if that is not so.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
from benchmarks.serve.kernels import Submitted, make_kernel
from benchmarks.serve.running import Server
from sqlalchemy import func, select, text

from opsmith.core.environment import cpu_name
from opsmith.core.run import write_atomically
from opsmith.serve.store.database import Database
from opsmith.serve.store.schema import FINAL, State, judgements, submissions, verdicts
from opsmith.serve.store.tokens import Role, create_token

#: Shares of the kernels judged at which the server is killed, and the database's connections.
SERVER_KILLS = (0.2, 0.5, 0.8)
CONNECTION_KILLS = (0.35, 0.65)
LOOK_S = 0.5


class Trial:
    """One run of everything.

    Args:
        place: an empty folder.
        clients: at a time.
        kernels: of all clients together.
        hostile_share: of them.
        url: of the database; a SQLite file if None.
        server_kills: shares of the kernels after which the server is killed.
        connection_kills: the same for the database's connections.
        locked_s: how long a SQLite file is locked instead, which has no connections to cut.
        options: further words of the server's command line.
    """

    def __init__(
        self,
        place: Path,
        *,
        clients: int,
        kernels: int,
        hostile_share: float,
        url: str | None = None,
        server_kills: tuple[float, ...] = SERVER_KILLS,
        connection_kills: tuple[float, ...] = CONNECTION_KILLS,
        locked_s: float = 25.0,
        options: tuple[str, ...] = (),
    ) -> None:
        self._data = place / "data"
        self._data.mkdir()
        self._url = url or f"sqlite:///{self._data / 'service.sqlite'}"
        self._database = Database(self._url)
        self._database.migrate()
        words = ["--suite", "smoke", "--ops", "relu.default", "--device", "cpu", "--timing", "off", "--policy", "any"]
        self._server = Server(self._data, *words, "--db", self._url, *options)
        self._clients, self._locked_s = clients, locked_s
        self._kernels = [
            make_kernel(number, hostile_share=hostile_share, place=str(self._data)) for number in range(kernels)
        ]
        self._kills = sorted(
            [(share, "server") for share in server_kills] + [(share, "connections") for share in connection_kills]
        )
        self._answers: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._submitted: dict[int, str] = {}
        self._killing: Future[None] = Future()

    def run(self) -> dict[str, Any]:
        """Carry it out; returns what was found."""
        self._server.start()
        started = time.monotonic()
        with contextlib.ExitStack() as held:
            held.callback(self._database.close)
            stopping = held.enter_context(contextlib.ExitStack())
            stopping.callback(self._server.stop)
            names = [f"client-{os.getpid()}-{number}" for number in range(self._clients)]
            secrets = [create_token(self._database, name, Role.SUBMITTER)[1] for name in names]
            with ThreadPoolExecutor(self._clients + 1) as pool:
                self._killing = pool.submit(self._kill)
                list(pool.map(self._be_client, range(self._clients), secrets))
                self._killing.result()
            seconds = time.monotonic() - started
            stopping.pop_all()
            return self._found(seconds) | {"exit_status": self._server.stop()}

    def _be_client(self, client: int, secret: str) -> None:
        headers = {"Authorization": f"Bearer {secret}"}
        with httpx2.Client(base_url=self._server.url, headers=headers, timeout=60.0) as http:
            for number in range(client, len(self._kernels), self._clients):
                self._submitted[number] = self._submit(http, number, self._kernels[number])
            for number in range(client, len(self._kernels), self._clients):
                while not self._ask(http, "GET", f"/api/submissions/{self._submitted[number]}")["final"]:
                    time.sleep(LOOK_S)

    def _submit(self, http: httpx2.Client, number: int, kernel: Submitted) -> str:
        body = {"tasks": ["relu.default"], "source": kernel.source, "run": "clients", "provenance": {"attempt": number}}
        again = number % 10 == 0  # Some requests are sent twice although they were answered.
        ids = {
            self._ask(http, "POST", "/api/submissions", json=body, headers={"Idempotency-Key": f"kernel-{number}"})[
                "id"
            ]
            for _ in range(1 + again)
        }
        (submission,) = ids
        return str(submission)

    def _ask(self, http: httpx2.Client, method: str, path: str, **more: Any) -> dict[str, Any]:
        """Ask until there is an answer."""
        while True:
            try:
                answer = http.request(method, path, **more)
            except httpx2.TransportError as exc:
                self._count(type(exc).__name__)
                if self._killing.done():
                    self._killing.result()  # Raises if the server did not come back: nobody will answer.
                time.sleep(LOOK_S)
                continue
            self._count(str(answer.status_code))
            if answer.status_code in {429, 503}:
                time.sleep(float(answer.headers["Retry-After"]))
                continue
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
            return found

    def _count(self, what: str) -> None:
        with self._counting:
            self._answers[what] += 1

    def _kill(self) -> None:
        for share, what in self._kills:
            while self._judged() < share * len(self._kernels):
                time.sleep(LOOK_S / 5)
            if what == "server":
                self._server.kill()
                self._server.start()
            elif self._database.is_sqlite:
                with contextlib.closing(sqlite3.connect(self._data / "service.sqlite", timeout=60)) as holder:
                    holder.isolation_level = None
                    holder.execute("BEGIN EXCLUSIVE")
                    time.sleep(self._locked_s)
                    holder.execute("ROLLBACK")
            else:
                with self._database.writing() as connection:
                    connection.execute(
                        text(
                            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                        )
                    )

    def _judged(self) -> int:
        with self._database.reading() as connection:
            wanted = select(func.count()).where(judgements.c.state.in_(FINAL))
            return int(connection.execute(wanted).scalar_one())

    def _found(self, seconds: float) -> dict[str, Any]:
        with self._database.reading() as connection:
            rows = connection.execute(
                select(
                    judgements.c.submission_id, judgements.c.state, judgements.c.accepted, judgements.c.tries,
                    judgements.c.outcome, func.count(verdicts.c.number).label("verdicts"),
                    func.count(verdicts.c.record.distinct()).label("distinct"),
                )
                .outerjoin(verdicts, verdicts.c.judgement_id == judgements.c.id)
                .group_by(judgements.c.id)
            ).all()  # fmt: skip
            requests = int(connection.execute(select(func.count()).select_from(submissions)).scalar_one())
        hostile = {self._submitted[number]: kernel.hostile for number, kernel in enumerate(self._kernels)}
        by_submission = Counter(row.submission_id for row in rows)
        complete = [row for row in rows if row.state == State.JUDGED and row.verdicts == row.distinct > 0]
        return {
            "clients": self._clients,
            "kernels": len(self._kernels),
            "hostile": sum(hostile.values()),
            "server_kills": sum(what == "server" for _, what in self._kills),
            "connection_kills": sum(what == "connections" for _, what in self._kills),
            "submissions": requests,
            "with_exactly_one_verdict_set": sum(by_submission[row.submission_id] == 1 for row in complete),
            "begun_again": sum(row.tries > 1 for row in rows),
            "right_not_accepted": sum(not row.accepted and not hostile[row.submission_id] for row in rows),
            "hostile_accepted": sum(bool(row.accepted) and hostile[row.submission_id] for row in rows),
            "outcomes": dict(Counter(row.outcome or row.state for row in rows)),
            "answers": dict(sorted(self._answers.items())),
            "seconds": round(seconds, 1),
            "kernels_per_s": round(len(rows) / seconds, 2),
        }


def holds(found: dict[str, Any]) -> bool:
    """Whether each kernel got one set of verdicts, only right ones were accepted, and the server ended well."""
    one_each = found["kernels"] == found["submissions"] == found["with_exactly_one_verdict_set"]
    told_apart = not found["right_not_accepted"] and not found["hostile_accepted"]
    return bool(one_each and told_apart and found["exit_status"] == 0)


def main() -> int:
    """Run one trial as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--hostile", type=float, default=0.1)
    parser.add_argument("--db", help="an empty PostgreSQL database; a SQLite file without it")
    parser.add_argument("-o", "--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="opsmith-clients-") as folder:
        trial = Trial(
            Path(folder), clients=asked.clients, kernels=asked.kernels, hostile_share=asked.hostile, url=asked.db
        )
        found = trial.run()
    found |= {
        "database": "postgresql" if asked.db else "sqlite",
        "cpu": cpu_name(),
        "cpu_count": len(os.sched_getaffinity(0)),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "holds": holds(found),
    }
    document = json.dumps(found, indent=2)
    print(document)
    if asked.out:
        write_atomically(asked.out, document.encode() + b"\n")
    return 0 if found["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
