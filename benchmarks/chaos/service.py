"""Two servers, thirty clients, hostile kernels, and one fault after another.

    python -m benchmarks.chaos.service --database sqlite --seed 1 --seconds 600 -o FOLDER
    python -m benchmarks.chaos.service --database postgresql --rounds 20 -o FOLDER
    python -m benchmarks.chaos.service --kernels 1000 -o FOLDER

A round has one fault, drawn from the seed. With ``--kernels`` nothing is done to the servers, which
are weighed until they have judged so many. In the end everything is mended and every acknowledged submission has to
have one set of verdicts, honest kernels have to be accepted and no others, and the servers have to leave nothing:
no temporary file, nothing in shared memory, no process. FOLDER gets ``record.jsonl``, to which each fault and each
acknowledged submission is appended as it happens, ``record.json`` and ``run.json``. Exit status 1 if a promise was
broken. As root with the right to mount, the servers work on a file system of their own, which is filled and made
read-only. Their clocks jump where there is a C compiler. ``record.jsonl`` begins with the faults that are possible.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chaos.clients import Clients
from benchmarks.chaos.kernels import Submitted
from benchmarks.chaos.place import Place, made, postgres
from benchmarks.chaos.record import write_record
from benchmarks.serve.running import Server
from sqlalchemy import select, text

from opsmith.errors import OpsmithError
from opsmith.runner.machine.process_times import descendants
from opsmith.serve.store import boards, runs
from opsmith.serve.store.database import Database
from opsmith.serve.store.schema import State, judgements, submissions, verdicts
from opsmith.serve.store.tokens import Role, create_token

WORDS = ("--suite", "smoke", "--ops", "relu.default", "--device", "cpu", "--timing", "off", "--policy", "any",
         "--most-judging-s", "45")  # fmt: skip
CLOCK = Path(__file__).with_name("clock.c")
JUMPS_S = (-3600, 3600, -60, 60, 86_400)
#: Seconds that a fault lasts, and between the end of one and the next.
HELD_S, BETWEEN_S = (1.0, 5.0), (1.0, 4.0)
#: Until everything is final after the last fault, and until a server that was told to end has ended.
MOST_WAIT_S, ENDING_S = 900.0, 60.0
#: Connections that are opened and left alone in one fault.
HALF_OPEN, ABORTED = 300, 100
#: Seconds between two looks at servers that nothing is done to.
BETWEEN_LOOKS_S = 5.0
#: MiB by which a server may grow over a thousand kernels, where it judged enough of them to tell.
MOST_GROWTH_MIB, TELLING = 64.0, 200


class Chaos:
    """One run of everything.

    Args:
        place: where the servers work.
        url: of PostgreSQL; a SQLite file in the place if None.
        out: takes the record.
        seed: of kernels and faults.
        clients: at a time.
    """

    def __init__(self, place: Place, url: str | None, out: Path, *, seed: int, clients: int) -> None:
        self._place, self._out, self._seed = place, out, seed
        self._draw = random.Random(seed)  # noqa: S311 - chaos that can be repeated
        self._journal = (out / "record.jsonl").open("a", encoding="utf-8")
        self._writing = threading.Lock()
        self._started = time.monotonic()
        self._file = place.root / "service.sqlite"
        self._url = url or f"sqlite:///{self._file}"
        self._database = Database(self._url)
        self._database.migrate()
        self._clock = place.root.parent / "clock"
        self._turn_clock(0)
        self._clock_library = _compiled(CLOCK, place.root.parent)
        self._servers = [self._server(name) for name in ("a", "b")]
        self._secrets = [create_token(self._database, f"client {n}", Role.SUBMITTER)[1] for n in range(clients)]
        self._problems: list[str] = []
        self._memory: list[dict[str, Any]] = []
        self._counts: Counter[str] = Counter()
        self.faults = self._allowed()

    def _server(self, name: str) -> Server:
        place = self._place.root
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("OPSMITH", "XDG"))}
        environment = kept | {
            "TMPDIR": str(place / "tmp"),
            "XDG_CACHE_HOME": str(place / "cache"),
            # What a worker may see of its environment: every process of the servers is found by it.
            "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(place / "marks")]),
        }
        if self._clock_library:
            environment |= {"LD_PRELOAD": str(self._clock_library), "CHAOS_CLOCK": str(self._clock)}
        words = [*WORDS, "--jobs", "1", "--db", self._url, "--accept-missing-layers"]
        return Server(place / name, *words, log=place.parent / f"{name}.log", environment=environment)

    def _allowed(self) -> dict[str, Callable[[], None]]:
        faults: dict[str, Callable[[], None]] = {
            "server killed": self._kill_server,
            "server stopped and started": self._stop_server,
            "processes of the judge killed": self._kill_processes,
            "connections left open": self._leave_connections_open,
            "second server on a folder": self._start_on_a_folder,
        }
        if self._database.is_sqlite:
            faults["database locked"] = self._lock
            faults["copy of the database damaged"] = self._damage_a_copy
        else:
            faults["connections of the database cut"] = self._cut
        if self._place.is_small:
            faults |= {"disk full": self._fill, "file system read-only": self._make_read_only}
        if self._clock_library:
            faults["clock set"] = self._set_clock
        return faults

    def tell(self, event: str, **more: Any) -> None:
        """Append to the record."""
        line = json.dumps({"s": round(time.monotonic() - self._started, 2), "event": event, **more})
        with self._writing:
            self._journal.write(f"{line}\n")
            self._journal.flush()

    def run(self, rounds: int | None, seconds: float | None, kernels: int | None = None) -> dict[str, Any]:
        """Carry it out; returns what was found.

        Args:
            rounds: faults.
            seconds: no further fault is begun after so long.
            kernels: no fault is begun; it ends when so many are judged.
        """
        self.tell("begun", seed=self._seed, faults=sorted(self.faults))
        for server in self._servers:
            server.start()
        ends = time.monotonic() + (seconds or float("inf"))
        clients = Clients(
            [server.url for server in self._servers],
            self._secrets,
            seed=self._seed,
            place=str(self._place.root),
            hostile_share=0.4,
            slow_share=0.03,
            told=self._acknowledged,
            most_wait_s=MOST_WAIT_S,
        )
        done = 0
        left = sorted(self.faults)
        self._draw.shuffle(left)  # Each of them before any comes again.
        with clients:
            while kernels is not None and self._judged() < kernels:
                time.sleep(BETWEEN_LOOKS_S)
                self._look_after()
            while kernels is None and time.monotonic() < ends and (rounds is None or done < rounds):
                time.sleep(self._draw.uniform(*BETWEEN_S))
                name = left.pop() if left else self._draw.choice(sorted(self.faults))
                self.tell("fault", round=done, name=name)
                self.faults[name]()
                self._counts[name] += 1
                self._look_after()
                done += 1
            self.tell("mended", rounds=done)
        statuses = [server.stop() for server in self._servers]
        self._problems += clients.problems
        if any(statuses):
            self._problems.append(f"servers ended with {statuses}")
        return self._found(clients) | {"rounds": done}

    def _acknowledged(self, submission: str, kernel: Submitted) -> None:
        self.tell("acknowledged", submission=submission, kind=kernel.kind)

    def _look_after(self) -> None:
        """A server that ended by itself broke a promise; it is started again."""
        for name, server in zip("ab", self._servers, strict=True):
            if server.has_ended:
                self._problems.append(f"server {name} ended by itself")
                self.tell("ended by itself", server=name)
                server.start()
            resident = Path(f"/proc/{server.pid}/statm").read_text().split()[1]
            mib = int(resident) * os.sysconf("SC_PAGE_SIZE") / 2**20
            self._memory.append({"pid": server.pid, "judged": self._judged(), "mib": round(mib, 1)})

    def _judged(self) -> int:
        return runs.count_queue(self._database)[State.JUDGED]

    def _hold(self) -> None:
        time.sleep(self._draw.uniform(*HELD_S))

    def _kill_server(self) -> None:
        server = self._draw.choice(self._servers)
        server.kill()
        server.start()

    def _stop_server(self) -> None:
        server = self._draw.choice(self._servers)
        if status := server.stop():
            self._problems.append(f"a server that was told to end ended with {status}")
        server.start()

    def _kill_processes(self) -> None:
        for server in self._servers:
            found = descendants(server.pid)
            for pid in self._draw.sample(found, min(len(found), self._draw.randint(1, 3))):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _leave_connections_open(self) -> None:
        """Half-open ones, and logins that are given up; the server is as good as before."""
        server = self._draw.choice(self._servers)
        login = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\ntoken="
        with contextlib.ExitStack() as held:
            for number in range(HALF_OPEN + ABORTED):
                with contextlib.suppress(OSError):
                    # Addresses of their own, so that the clients' is not closed.
                    source = (f"127.0.{1 + number % 4}.1", 0)
                    each = socket.create_connection(("127.0.0.1", server.port), timeout=5, source_address=source)
                    if number < HALF_OPEN:
                        held.enter_context(each)
                    else:
                        with each:
                            each.sendall(login)
            self._hold()

    def _start_on_a_folder(self) -> None:
        """A further server that is given the folder of one of these is refused in one line."""
        server = self._draw.choice(self._servers)
        words = [*WORDS, "--port", "0", "--db", self._url, "--data", str(server.data)]
        program = [sys.executable, "-c", "from opsmith.cli.main import main; main()", "serve", *words]
        found = subprocess.run(program, check=False, capture_output=True, timeout=120, env=server.environment)  # noqa: S603
        lines = found.stderr.decode(errors="replace").strip().splitlines()
        if found.returncode != 2 or len(lines) != 1 or "--data" not in lines[0]:
            self._problems.append(f"a second server on one folder: status {found.returncode}, {lines[-3:]}")

    def _lock(self) -> None:
        with contextlib.closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            self._hold()
            holder.execute("ROLLBACK")

    def _cut(self) -> None:
        with self._database.writing() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )

    def _fill(self) -> None:
        with self._place.full():
            self._hold()

    def _make_read_only(self) -> None:
        with self._place.read_only():
            self._hold()

    def _set_clock(self) -> None:
        self._turn_clock(self._draw.choice(JUMPS_S))
        self._hold()
        self._turn_clock(0)

    def _turn_clock(self, seconds: int) -> None:
        """Set the servers' clock, or set it right: written in place, for they have the file mapped."""
        with self._clock.open("r+b" if self._clock.exists() else "w+b") as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))

    def _damage_a_copy(self) -> None:
        """Whatever page it is, a copy is read as it was, or called damaged."""
        copy = self._place.root.parent / "copy.sqlite"
        with (
            contextlib.closing(sqlite3.connect(self._file, timeout=60)) as original,
            contextlib.closing(sqlite3.connect(copy)) as target,
        ):
            original.backup(target)
        page = self._draw.randrange(copy.stat().st_size // 4096)
        with copy.open("r+b") as file:
            file.seek(page * 4096)
            file.write(self._draw.randbytes(4096))
        try:
            with contextlib.closing(Database(f"sqlite:///{copy}")) as database:
                database.migrate()
                for run in runs.list_runs(database):
                    for row in runs.list_judgements(database, run.id, limit=1000):
                        runs.list_verdicts(database, row.id, limit=1000)
                boards.leaderboard(database, "smoke")
            outcome = "read"
        except OpsmithError as exc:
            outcome = str(exc)
        except Exception as exc:  # noqa: BLE001 - any other one is a fault of ours
            outcome = f"{type(exc).__name__}: {exc}"
            self._problems.append(f"a copy with page {page} damaged: {outcome}")
        self.tell("damaged", page=page, outcome=outcome[:200])
        for ending in ("", "-wal", "-shm", ".lock"):
            Path(f"{copy}{ending}").unlink(missing_ok=True)

    def _found(self, clients: Clients) -> dict[str, Any]:
        with self._database.reading() as connection:
            rows = connection.execute(
                select(judgements.c.id, judgements.c.submission_id, judgements.c.state, judgements.c.accepted,
                       judgements.c.tries, judgements.c.outcome, judgements.c.detail)
            ).all()  # fmt: skip
            known = set(connection.execute(select(submissions.c.id)).scalars())
            numbers: dict[int, list[int]] = {}
            for judgement, number in connection.execute(select(verdicts.c.judgement_id, verdicts.c.number)):
                numbers.setdefault(judgement, []).append(number)
        of = Counter(row.submission_id for row in rows)
        acknowledged = clients.acknowledged
        wrong: dict[str, list[str]] = {name: [] for name in ("lost", "not_one_set", "not_final", "honest", "hostile")}
        for submission in acknowledged:
            if submission not in known or of[submission] != 1:
                wrong["lost"].append(submission)
        for row in rows:
            kernel = acknowledged.get(row.submission_id)
            if kernel is None:
                continue  # Nobody was told that it is there.
            told = f"{row.submission_id} {kernel.kind}: {row.outcome or row.state} {row.detail or ''}"[:300]
            if row.state not in {State.JUDGED, State.ABANDONED}:
                wrong["not_final"].append(told)
            elif row.state == State.JUDGED and sorted(numbers.get(row.id, ())) != list(range(len(numbers[row.id]))):
                wrong["not_one_set"].append(told)
            if kernel.is_honest and not row.accepted:
                wrong["honest"].append(told)
            if not kernel.is_honest and row.accepted:
                wrong["hostile"].append(told)
        deadline = time.monotonic() + ENDING_S
        # What ends is given time for it; and others of this machine use shared memory, too, for a while.
        while any(self._place.left().values()) and time.monotonic() < deadline:
            time.sleep(0.5)
        logs = [server.log.read_text(errors="replace") for server in self._servers]
        tracebacks = sum(log.count("Traceback (most recent call last)") for log in logs)
        for name, log in zip("ab", logs, strict=True):
            (self._out / f"{name}.log").write_text(log)
        found = {
            "submissions": len(acknowledged),
            "kinds": dict(sorted(Counter(kernel.kind for kernel in acknowledged.values()).items())),
            "faults": dict(sorted(self._counts.items())),
            "outcomes": dict(Counter(row.outcome or row.state for row in rows)),
            "begun_again": sum(row.tries > 1 for row in rows),
            "wrong": wrong,
            "left": self._place.left(),
            "tracebacks": tracebacks,
            "memory": self._grown(),
            "answers": dict(sorted(clients.answers.items())),
            "problems": self._problems,
            "seconds": round(time.monotonic() - self._started, 1),
        }
        found["holds"] = holds(found)
        return found

    def _grown(self) -> dict[str, Any]:
        """What servers weighed at first and at last, and how much they grew over a thousand kernels."""
        lives: dict[int, list[dict[str, Any]]] = {}
        for look in self._memory:
            lives.setdefault(look["pid"], []).append(look)
        longest = max(lives.values(), key=lambda looks: looks[-1]["judged"] - looks[0]["judged"], default=[])
        if not longest:
            return {}
        kernels = longest[-1]["judged"] - longest[0]["judged"]
        grown = longest[-1]["mib"] - longest[0]["mib"]
        return {
            "first_mib": longest[0]["mib"],
            "last_mib": longest[-1]["mib"],
            "kernels_of_both_servers": kernels,
            "grown_mib_per_1000": round(grown / kernels * 1000, 1) if kernels >= TELLING else None,
        }

    def close(self) -> None:
        """Close the record."""
        self._database.close()
        self._journal.close()


def _compiled(source: Path, folder: Path) -> Path | None:
    """A library that is loaded before others; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "clock.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)  # noqa: S603
    return library


def holds(found: dict[str, Any]) -> bool:
    """Whether every promise was kept."""
    grown = found["memory"].get("grown_mib_per_1000")
    return (
        not any(found["wrong"].values())
        and not any(found["left"].values())
        and not found["problems"]
        and not found["tracebacks"]
        and (grown is None or grown <= MOST_GROWTH_MIB)
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, help="faults; any number without it")
    parser.add_argument("--seconds", type=float, help="no further fault is begun after so long")
    parser.add_argument("--kernels", type=int, help="no faults, until so many are judged")
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("-o", "--out", type=Path, required=True, help="a new folder for the record")
    asked = parser.parse_args(words)
    asked.out.mkdir(parents=True)
    with contextlib.ExitStack() as held:
        place = held.enter_context(made())
        url = held.enter_context(postgres()) if asked.database == "postgresql" else None
        chaos = Chaos(place, url, asked.out, seed=asked.seed, clients=asked.clients)
        held.callback(chaos.close)
        found = chaos.run(asked.rounds, asked.seconds or (None if asked.rounds else 600.0), asked.kernels)
    told = ["--database", asked.database, "--seed", asked.seed, "--clients", asked.clients]
    told += ["--rounds", asked.rounds] if asked.rounds else []
    told += ["--seconds", f"{asked.seconds:g}"] if asked.seconds else []
    told += ["--kernels", asked.kernels] if asked.kernels else []
    return write_record(asked.out, "benchmarks.chaos.service", told, seed=asked.seed, found=found)


if __name__ == "__main__":
    sys.exit(main())
