"""The journal of a campaign: every exchange, every judgement and every cent, in one SQLite file.

It is cache, resume, replay and audit in one. A campaign is a function of its options, the replies and the judgements;
taken up again, or replayed, it is run again from its beginning, and the journal answers what is known. What is about to
be spent is reserved before, in the transaction that writes down the question, and settled after. An exchange that was
under way when the process died may have been paid for; it is never repeated, and its reservation stays spent. One that
was refused before anybody worked on it, for a wrong key for example, costs nothing and is asked again.

No key and no secret is written here: requests do not hold any, and they are taken out of what comes back.
"""

from __future__ import annotations

import enum
import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.counts import counted
from opsmith.core.evidence import Evidence
from opsmith.core.run import OpSummary
from opsmith.errors import BadInput
from opsmith.generate.advisor.hints import HintFate
from opsmith.generate.attempt import Attempt
from opsmith.generate.budget import Amount, Budget
from opsmith.generate.chat import Reply, Request
from opsmith.session import Judged

FORMAT = 2
# Made here, once: msgspec 0.22 crashes where two threads decode a type for the first time.
_JUDGED = msgspec.json.Decoder(Judged)
_REQUEST = msgspec.json.Decoder(Request)
_REPLY = msgspec.json.Decoder(Reply)
_EVIDENCE = msgspec.json.Decoder(Evidence)
_SCHEMA = """
CREATE TABLE campaign (format INTEGER NOT NULL, identity BLOB NOT NULL, seed INTEGER NOT NULL, started TEXT NOT NULL);
CREATE TABLE exchanges (
    key TEXT PRIMARY KEY,
    model TEXT NOT NULL,
    request BLOB NOT NULL,
    state TEXT NOT NULL,
    reply BLOB,
    problem TEXT,
    usd REAL,
    tokens INTEGER NOT NULL,
    most_usd REAL,
    most_tokens INTEGER NOT NULL,
    asked TEXT NOT NULL,
    ended TEXT,
    asked_as TEXT NOT NULL DEFAULT 'writer'
);
CREATE TABLE judgements (
    task TEXT NOT NULL,
    kernel TEXT NOT NULL,
    state TEXT NOT NULL,
    judged BLOB,
    device_s REAL NOT NULL,
    most_s REAL NOT NULL
);
CREATE INDEX judgement_of ON judgements (task, kernel);
CREATE TABLE held_out (task TEXT NOT NULL, kernel TEXT NOT NULL, found BLOB NOT NULL, PRIMARY KEY (task, kernel));
CREATE TABLE attempts (
    task TEXT NOT NULL,
    number INTEGER NOT NULL,
    model TEXT NOT NULL,
    exchange TEXT NOT NULL,
    outcome TEXT NOT NULL,
    kernel TEXT,
    PRIMARY KEY (task, number)
);
"""


# What journals of the same format that are older lack.
_COLUMNS = {"asked_as": "ALTER TABLE exchanges ADD COLUMN asked_as TEXT NOT NULL DEFAULT 'writer'"}
_TABLES = """
CREATE TABLE IF NOT EXISTS evidence (
    task TEXT NOT NULL,
    kernel TEXT NOT NULL,
    found BLOB NOT NULL,
    device_s REAL NOT NULL,
    PRIMARY KEY (task, kernel)
);
CREATE TABLE IF NOT EXISTS drawings (subject TEXT PRIMARY KEY, png BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS hints (
    task TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    number INTEGER NOT NULL,
    exchange TEXT NOT NULL,
    hint TEXT NOT NULL,
    taken TEXT NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (task, attempt, number)
)
"""


class AskedAs(enum.StrEnum):
    """What a model is asked for: a kernel, or hints for whoever writes one."""

    WRITER = "writer"
    ADVISOR = "advisor"


class State(enum.StrEnum):
    """Of an exchange or a judgement. UNDER_WAY turns to LOST when the journal is opened again."""

    UNDER_WAY = "under way"
    ANSWERED = "answered"
    FAILED = "failed"
    REFUSED = "refused"
    LOST = "lost"


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a question.

    Attributes:
        request: the question.
        state: how it ended.
        reply: the answer, if there is one.
        problem: why there is none, in one line.
        usd: paid, or None where nobody knows the price.
        tokens: used, or reserved where nobody knows.
        most: what it could cost, as it was reserved.
    """

    request: Request
    state: State
    reply: Reply | None
    problem: str | None
    usd: float | None
    tokens: int
    most: Amount

    @property
    def overran(self) -> bool:
        """Whether it cost more than it could, as the provider says."""
        dearer = self.usd is not None and self.most.usd is not None and self.usd > self.most.usd * (1 + 1e-9)
        return self.tokens > self.most.tokens or dearer


class HeldOut(msgspec.Struct, frozen=True, kw_only=True):
    """What the last judging found about a kernel; see :mod:`opsmith.generate.held_out`.

    Attributes:
        round: name of the round, a folder.
        accepted: it was right on those values too.
        summary: its scores; None of a task that asks nothing there.
        low: lower end of the interval of its speedup, of kernel time where there is one, else of call time.
        reason: why it is refused, in one line.
        took_s: its share of the seconds of its round.
    """

    round: str
    accepted: bool
    summary: OpSummary | None
    low: float | None
    reason: str | None
    took_s: float = 0.0


_HELD_OUT = msgspec.json.Decoder(HeldOut)


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What a campaign has spent.

    Attributes:
        usd: paid, reservations of what is under way or was lost included.
        tokens: likewise.
        device_s: seconds of judgements that ended, and of looking at kernels for an advisor.
        lost_exchanges: sent, and not waited for: charged as reserved.
        lost_judgements: that a kill cut off. Their kernels are judged anew.
        lost_device_s: seconds of those, which are not in ``device_s``: a campaign's result does not depend on kills.
        last_judging_s: seconds of the last judging, which no budget limits.
    """

    usd: float
    tokens: int
    device_s: float
    lost_exchanges: int = 0
    lost_judgements: int = 0
    lost_device_s: float = 0.0
    last_judging_s: float = 0.0

    @property
    def cut_off(self) -> str:
        """What kills cut off, in one line; nothing where they did not."""
        if not self.lost_judgements:
            return ""
        return f"{counted(self.lost_judgements, 'judgement')} cut off by kills, after {self.lost_device_s:.1f} s in all"

    def exceeds(self, budget: Budget) -> list[tuple[str, float, float]]:
        """The limits that were exceeded: name, what was spent, limit; judgements that a kill cut off count."""
        spent = {"usd": self.usd, "tokens": self.tokens, "device_s": self.device_s + self.lost_device_s}
        limits = msgspec.structs.asdict(budget)
        return [
            (name, value, limits[name])
            for name, value in spent.items()
            if limits[name] is not None and value > limits[name]
        ]


class Journal:
    """See the module's docstring; may be used from several threads, by one process at a time.

    Args:
        path: the file; made if it does not exist, unless ``resume``.
        resume: a campaign is to be taken up again.

    Raises:
        BadInput: the file is no journal, of another format, used by another process, or holds no campaign to resume.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=0)
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            with self._transaction():
                if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'campaign'").fetchone():
                    if resume:
                        raise BadInput(
                            f"{path} holds no campaign: it was emptied, or never begun; choose another -o, since what "
                            "was paid for there is not known any more"
                        )
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        self._db.execute(statement)
                self._check_format()
                self._add_what_is_new()
                self._db.execute("UPDATE exchanges SET state = ? WHERE state = ?", (State.LOST, State.UNDER_WAY))
                self._db.execute("UPDATE judgements SET state = ? WHERE state = ?", (State.LOST, State.UNDER_WAY))
        except sqlite3.DatabaseError as exc:
            self._db.close()
            busy = "locked" in str(exc)
            raise BadInput(
                f"{path} is in use by another process" if busy else f"{path} is no journal of a campaign: {exc}"
            ) from exc
        except BadInput:
            self._db.close()
            raise

    def close(self) -> None:
        """Close it; waits for a transaction under way."""
        with self._lock:
            self._db.close()

    def _check_format(self) -> None:
        row = self._db.execute("SELECT format FROM campaign").fetchone()
        if row is not None and row[0] != FORMAT:
            raise BadInput(f"{self.path} has format {row[0]}; this opsmith reads format {FORMAT}")

    def _add_what_is_new(self) -> None:
        known = {row[1] for row in self._db.execute("PRAGMA table_info(exchanges)")}
        for statement in (*(_COLUMNS[name] for name in _COLUMNS.keys() - known), *_TABLES.split(";")):
            self._db.execute(statement)

    def open_campaign(self, identity: Mapping[str, Any], *, seed: int, given: int | None = None) -> int:
        """Begin a campaign, or take it up again.

        Args:
            identity: name -> what decides its results, apart from the seed.
            seed: of the values that kernels are judged on, should it begin.
            given: the seed that was asked for, if one was.

        Returns:
            The campaign's seed.

        Raises:
            BadInput: the journal is that of a campaign with another identity or seed.
        """
        encoded = msgspec.json.encode(identity, order="sorted")
        with self._transaction():
            row = self._db.execute("SELECT identity, seed FROM campaign").fetchone()
            if row is None:
                # SQLite's integers have 64 bits and a sign.
                self._db.execute(
                    "INSERT INTO campaign VALUES (?, ?, ?, ?)", (FORMAT, encoded, seed % (1 << 63), _now())
                )
                return seed % (1 << 63)
        if row[0] != encoded:
            raise BadInput(
                f"{self.path} was begun with other options ({_differences(row[0], encoded)}); repeat them, or choose "
                "another --out"
            )
        if given is not None and given % (1 << 63) != row[1]:
            raise BadInput(f"{self.path} was begun with another seed; leave --seed out to continue it")
        return int(row[1])

    def exchange(self, key: str) -> Exchange | None:
        """What is known of a question; None of one that was never asked, or refused before anybody worked on it."""
        with self._lock:
            row = self._db.execute(f"{_EXCHANGES} WHERE key = ? AND state != ?", (key, State.REFUSED)).fetchone()
        return _exchange(row) if row else None

    def exchanges(self) -> list[Exchange]:
        """All that were sent, in the order in which they were asked."""
        with self._lock:
            rows = self._db.execute(f"{_EXCHANGES} WHERE state != ? ORDER BY rowid", (State.REFUSED,)).fetchall()
        return list(map(_exchange, rows))

    def asked_as(self, asked_as: AskedAs) -> list[Exchange]:
        """Those of :meth:`exchanges` in which models were asked as that."""
        with self._lock:
            rows = self._db.execute(
                f"{_EXCHANGES} WHERE state != ? AND asked_as = ? ORDER BY rowid", (State.REFUSED, asked_as)
            ).fetchall()
        return list(map(_exchange, rows))

    def begin(self, request: Request, most: Amount, asked_as: AskedAs = AskedAs.WRITER) -> None:
        """Reserve what a question may cost; called right before it is asked."""
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO exchanges (key, model, request, state, usd, tokens, most_usd, most_tokens, "
                "asked, asked_as) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(request.key, request.model, msgspec.json.encode(request), State.UNDER_WAY),
                    *(most.usd, most.tokens, most.usd, most.tokens, _now(), asked_as),
                ),
            )

    def answered(self, request: Request, reply: Reply, cost: Amount | None) -> None:
        """Settle a question that was answered; without a cost the reservation stays."""
        self._settle(request, State.ANSWERED, cost, reply=msgspec.json.encode(reply))

    def failed(self, request: Request, problem: str, *, free: bool) -> None:
        """Settle a question without an answer, which cost nothing if it was ``free``, else what was reserved."""
        self._settle(request, State.FAILED, Amount(0.0, 0) if free else None, problem=problem)

    def refused(self, request: Request, problem: str) -> None:
        """Settle a question that nobody worked on: it cost nothing, and is asked again."""
        self._settle(request, State.REFUSED, Amount(0.0, 0), problem=problem)

    def _settle(
        self,
        request: Request,
        state: State,
        cost: Amount | None,
        *,
        reply: bytes | None = None,
        problem: str | None = None,
    ) -> None:
        with self._transaction():
            self._db.execute(
                "UPDATE exchanges SET state = ?, reply = ?, problem = ?, ended = ? WHERE key = ?",
                (state, reply, problem, _now(), request.key),
            )
            if cost is not None:
                self._db.execute(
                    "UPDATE exchanges SET usd = ?, tokens = ? WHERE key = ?", (cost.usd, cost.tokens, request.key)
                )

    def judgement(self, task: str, kernel: str) -> Judged | None:
        """What was found about a kernel, by its content hash."""
        with self._lock:
            row = self._db.execute(
                "SELECT judged FROM judgements WHERE task = ? AND kernel = ? AND state = ?",
                (task, kernel, State.ANSWERED),
            ).fetchone()
        return _JUDGED.decode(row[0]) if row else None

    def begin_judging(self, task: str, kernel: str, most_s: float) -> int:
        """Write down that a kernel is about to be judged; a number for the judgement.

        Args:
            task: it is for.
            kernel: its content hash.
            most_s: seconds that it may take.
        """
        with self._transaction():
            cursor = self._db.execute(
                "INSERT INTO judgements (task, kernel, state, device_s, most_s) VALUES (?, ?, ?, 0, ?)",
                (task, kernel, State.UNDER_WAY, most_s),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def judging(self, seconds: Mapping[int, float]) -> None:
        """Write down how long judgements under way, by their numbers, have taken so far: a kill keeps that."""
        with self._transaction():
            self._db.executemany(
                "UPDATE judgements SET device_s = ? WHERE rowid = ? AND state = ?",
                ((took_s, number, State.UNDER_WAY) for number, took_s in seconds.items()),
            )

    def judged(self, judged: Judged) -> None:
        """Settle a judgement."""
        with self._transaction():
            self._db.execute(
                "UPDATE judgements SET state = ?, judged = ?, device_s = ? WHERE task = ? AND kernel = ? AND state = ?",
                (
                    *(State.ANSWERED, msgspec.json.encode(judged), judged.device_s),
                    *(judged.task, judged.kernel_hash, State.UNDER_WAY),
                ),
            )

    def judging_overruns(self) -> list[tuple[str, float, float]]:
        """Task, seconds and limit of the judgements that took longer than they may."""
        with self._lock:
            return self._db.execute(
                "SELECT task, device_s, most_s FROM judgements WHERE device_s > most_s ORDER BY rowid"
            ).fetchall()

    def held_out(self, task: str, kernel: str) -> HeldOut | None:
        """What the last judging found about a kernel, by the hash that its judgement has."""
        with self._lock:
            row = self._db.execute(
                "SELECT found FROM held_out WHERE task = ? AND kernel = ?", (task, kernel)
            ).fetchone()
        return _HELD_OUT.decode(row[0]) if row else None

    def keep_held_out(self, task: str, kernel: str, found: HeldOut) -> None:
        """Write down what the last judging found."""
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO held_out VALUES (?, ?, ?)", (task, kernel, msgspec.json.encode(found))
            )

    def keep_attempts(self, attempts: Iterable[tuple[str, Attempt]]) -> None:
        """Write down what was made of the exchanges, for whoever recomputes the figures; nothing here reads it."""
        with self._transaction():
            self._db.execute("DELETE FROM attempts")
            self._db.executemany(
                "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (task, each.index, each.model, each.exchange, each.outcome, each.judged and each.judged.kernel_hash)
                    for task, each in attempts
                ),
            )

    def spent_as(self, asked_as: AskedAs) -> Amount:
        """Money and tokens of the exchanges that models were asked in as that, reservations included."""
        with self._lock:
            usd, tokens = self._db.execute(
                "SELECT total(usd), coalesce(sum(tokens), 0) FROM exchanges WHERE asked_as = ?", (asked_as,)
            ).fetchone()
        return Amount(usd, tokens)

    def evidence(self, task: str, kernel: str) -> Evidence | None:
        """What was looked at of a kernel, by its content hash."""
        with self._lock:
            row = self._db.execute(
                "SELECT found FROM evidence WHERE task = ? AND kernel = ?", (task, kernel)
            ).fetchone()
        return _EVIDENCE.decode(row[0]) if row else None

    def keep_evidence(self, task: str, kernel: str, found: Evidence, device_s: float) -> None:
        """Write down what was found, and the seconds that it took of the device."""
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO evidence VALUES (?, ?, ?, ?)",
                (task, kernel, msgspec.json.encode(found), device_s),
            )

    def drawing(self, subject: str, draw: Callable[[], bytes]) -> bytes:
        """The picture of a subject, drawn the first time that it is asked for: another library draws another one."""
        with self._lock:
            row = self._db.execute("SELECT png FROM drawings WHERE subject = ?", (subject,)).fetchone()
        if row is not None:
            return bytes(row[0])
        png = draw()
        with self._transaction():
            self._db.execute("INSERT OR IGNORE INTO drawings VALUES (?, ?)", (subject, png))
        return png

    def keep_hints(self, task: str, fates: Iterable[HintFate]) -> None:
        """Write down what became of hints; nothing here reads it."""
        with self._transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO hints VALUES (?, ?, ?, ?, ?, ?, ?)",
                ((task, f.attempt, f.number, f.exchange, f.hint, f.taken, f.result) for f in fates),
            )

    @property
    def spent(self) -> Spent:
        """What was spent so far, exchanges under way counted as they were reserved."""
        with self._lock:
            usd, tokens, lost = self._db.execute(
                "SELECT coalesce(sum(usd), 0.0), coalesce(sum(tokens), 0), count(*) FILTER (WHERE state = ?) "
                "FROM exchanges",
                (State.LOST,),
            ).fetchone()
            device_s, lost_s, cut_off = self._db.execute(
                "SELECT total(device_s) FILTER (WHERE state = ?), total(device_s) FILTER (WHERE state = ?), "
                "count(*) FILTER (WHERE state = ?) FROM judgements",
                (State.ANSWERED, State.LOST, State.LOST),
            ).fetchone()
            [looked_s] = self._db.execute("SELECT total(device_s) FROM evidence").fetchone()
            [last_s] = self._db.execute(
                "SELECT total(json_extract(CAST(found AS TEXT), '$.took_s')) FROM held_out"
            ).fetchone()
        return Spent(
            usd=usd,
            tokens=tokens,
            device_s=device_s + looked_s,
            lost_exchanges=lost,
            lost_judgements=cut_off,
            lost_device_s=lost_s,
            last_judging_s=last_s,
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield
                except BaseException:
                    with suppress(sqlite3.OperationalError):  # SQLite may have done so itself, on a full disk.
                        self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.OperationalError as exc:
                if not _is_full(exc):
                    raise
                with suppress(sqlite3.OperationalError):
                    self._db.execute("ROLLBACK")
                raise BadInput(f"{self.path} cannot be written: {exc}; make room, then continue with --resume") from exc


_EXCHANGES = "SELECT request, state, reply, problem, usd, tokens, most_usd, most_tokens FROM exchanges"


def _is_full(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorname.partition("_")[2].startswith(("FULL", "IOERR", "READONLY"))


def _differences(before: bytes, now: bytes) -> str:
    """``attempts: 3, now 4``: the names whose values differ."""
    was, is_ = _flat(msgspec.json.decode(before)), _flat(msgspec.json.decode(now))
    names = [name for name in dict.fromkeys(itertools.chain(was, is_)) if was.get(name) != is_.get(name)]
    shown = [f"{name}: {_short(was.get(name))}, now {_short(is_.get(name))}" for name in names]
    return "; ".join(shown[:3]) + ("; ..." if len(shown) > 3 else "")


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in record.items():
        found |= _flat(value) if isinstance(value, dict) else {name: value}
    return found


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else f"{text[:40]}..."


def _exchange(row: tuple[bytes, str, bytes | None, str | None, float | None, int, float | None, int]) -> Exchange:
    request, state, reply, problem, usd, tokens, most_usd, most_tokens = row
    return Exchange(
        request=_REQUEST.decode(request),
        state=State(state),
        reply=None if reply is None else _REPLY.decode(reply),
        problem=problem,
        usd=usd,
        tokens=tokens,
        most=Amount(most_usd, most_tokens),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
