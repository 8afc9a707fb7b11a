"""The judge's threads: each takes a judgement from the queue, makes it, and writes what was found."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

import msgspec

from opsmith.core.environment import Environment
from opsmith.core.kernel import Kernel
from opsmith.core.run import Options, PlannedOp, TimedCase, write_atomically
from opsmith.core.timing import Clock
from opsmith.core.verdict import Status, Verdict
from opsmith.errors import BadInput, MachineFailed, OpsmithError
from opsmith.generate.reward import why_not
from opsmith.report.scores import summarise_by_dtype, summarise_op
from opsmith.reviews.scope import reviewed_hash
from opsmith.serve.live import Live
from opsmith.serve.machine import Company, lacks, missing, shortage
from opsmith.serve.metrics import Metrics
from opsmith.serve.store import queue
from opsmith.serve.store.database import Database, StoreAway, StoreDamaged
from opsmith.session import AskedTask, Judged
from opsmith.session import Found as Told

logger = logging.getLogger(__name__)

#: How long an idle thread sleeps before it looks again, unless it is woken: another server may have submitted.
IDLE_S = 1.0
#: Between two attempts to reach a database that is away.
AWAY_S = 0.5
#: That it is away is in the log so often.
TOLD_S = 30.0
#: A kernel over which judging failed so often is not judged any more.
MOST_LOSSES = 3
#: Before a kernel is judged again over which judging failed, or for which the machine had no room.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)
#: What verdicts say where processes were ended.
SIGNS_OF_AN_END = (signal.SIGKILL.name, "took the judge's processes with it")
#: A machine that has given no processes for so long, and has judged nothing, is broken.
BROKEN_S = 120.0
HOW_TO_GO_ON = "what waits stays in the queue: see to the machine"
#: Claims are renewed this often, well before they run out.
RENEWAL_S = queue.CLAIM_S / 4


class _Stopped(Exception):
    """The server stops: what is not finished goes back into the queue."""


class _GivenUp(Exception):
    """Judging failed too often over one kernel; the message says how."""


class _Again(Exception):
    """What was found may be no kernel's doing; the message says whose."""


class Judge(Protocol):
    """What the threads need of a :class:`~opsmith.session.Session`."""

    options: Options
    environment: Environment
    void: Mapping[str, str]

    @property
    def tasks(self) -> Mapping[str, AskedTask]:
        """What a kernel may be judged on, by name."""
        ...

    @property
    def clock(self) -> Clock | None:
        """How kernels are timed; None until one was."""
        ...

    def kernel_in(self, source: Path, task: str) -> Kernel:
        """The kernel for a task that a file defines."""
        ...

    def planned(self, task: str, kernel: Kernel | None) -> PlannedOp:
        """What a task asks, and who answers it."""
        ...

    def judge_kernel(
        self, task: str, kernel: Kernel, *, most_s: float, told: Callable[[Told], None] | None = None
    ) -> Judged:
        """Judge a kernel; called from several threads."""
        ...


class Judging:
    """Judges what is in the queue; a context manager.

    Args:
        database: has the queue.
        judges: suite -> the session that judges it.
        jobs: kernels judged at a time, of each suite.
        live: is told what is found.
        metrics: count it.
        folder: takes the sources as files; no kernel may read it.
        rooms: folders on whose file systems judging needs room.
        most_s: after so many seconds no further case of a kernel is begun.
        failed: told when judging cannot go on, from one of the threads.
    """

    def __init__(
        self,
        database: Database,
        judges: Mapping[str, Judge],
        *,
        jobs: int,
        live: Live,
        metrics: Metrics,
        folder: Path,
        rooms: Sequence[Path] = (),
        most_s: float,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.judges = judges
        self.rules = {suite: rules_of(judge) for suite, judge in judges.items()}
        self._database = database
        self._live = live
        self._metrics = metrics
        self._folder = folder
        self._rooms = (folder, *rooms)
        self._company = Company()
        self._told_away = -math.inf
        self._done = 0
        self._gives_none_since: float | None = None
        self._most_s = most_s
        self._failed = failed
        self._stop = threading.Event()
        self._more = threading.Condition()
        self._claims: set[str] = set()
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._work, suite), name=f"judge-{suite}-{number}")
            for suite in judges
            for number in range(jobs)
        ]
        self._threads.append(threading.Thread(target=self._guarded, args=(self._renew, ""), name="claims"))

    def __enter__(self) -> Self:
        """Start the threads."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.wake()
        for thread in self._threads:
            thread.join()

    def wake(self) -> None:
        """There is something new in the queue."""
        with self._more:
            self._more.notify_all()

    def _guarded(self, work: Callable[[str], None], suite: str) -> None:
        """Work until the server stops; only what no later try can mend ends it."""
        while not self._stop.is_set():
            try:
                work(suite)
            except (MachineFailed, StoreDamaged) as exc:
                self._failed(exc)
                return
            except Exception:
                logger.exception("a thread of the judge failed and begins again; please report it")
                self._stop.wait(PAUSES_S[0])

    def _work(self, suite: str) -> None:
        while not self._stop.is_set():
            try:
                claimed = queue.claim_next(self._database, suite, self.rules[suite])
            except StoreAway as exc:
                self._tell_away(exc)
                self._stop.wait(AWAY_S)
                continue
            if claimed is not None:
                self._take(claimed)
                continue
            with self._more:
                if not self._stop.is_set():
                    self._more.wait(IDLE_S)

    def _take(self, claimed: queue.Claimed) -> None:
        self._claims.add(claimed.claim)
        self._live.begin(claimed.id)
        try:
            found = self._judge_in_the_end(claimed)
            if self._persistently(lambda: queue.complete(self._database, claimed, found)):
                self._metrics.judged(claimed.suite, found)
            else:
                logger.warning("judgement %d was not written: another server has it, or this one stops", claimed.id)
        except _GivenUp as exc:
            reason = str(exc)
            self._persistently(lambda: queue.abandon(self._database, claimed, reason))
        except _Stopped:
            self._give_back(claimed)
        except MachineFailed:
            self._give_back(claimed)
            raise
        finally:
            self._live.end(claimed.id)
            self._claims.discard(claimed.claim)

    def _judge_in_the_end(self, claimed: queue.Claimed) -> queue.Found:
        """Judge a kernel, however often processes of the judge are lost on the way or the machine has no room.

        A kernel over which something was lost is judged again with no other one beside it: what is lost then is its
        own fault. What the machine lacks is waited for, and is nobody's.

        Raises:
            _GivenUp: judging failed :data:`MOST_LOSSES` times over this kernel.
            MachineFailed: the machine gives no processes.
        """
        losses, waits, done = 0, 0, self._done
        while True:
            try:
                with self._company.alone() if losses else self._company.beside_others():
                    return self._judge_with_room(claimed, again=waits < MOST_LOSSES - 1)
            except _Again as exc:
                waits += 1
                logger.warning("judgement %d is judged again: %s", claimed.id, exc)
            except MachineFailed as exc:
                self._bear(exc)
                waits += 1
            except _Stopped:
                raise
            except Exception as exc:
                is_known = isinstance(exc, OpsmithError)
                if isinstance(exc, OSError) and lacks(exc) and (waits < MOST_LOSSES or done == self._done):
                    waits += 1  # Unless others have had what this one lacks.
                    logger.warning("judgement %d is judged again: %s", claimed.id, missing(exc))
                else:
                    losses += 1
                    logger.warning("judging failed over judgement %d: %s", claimed.id, exc, exc_info=not is_known)
                if losses == MOST_LOSSES:
                    raise _GivenUp(f"judging failed {losses} times over this kernel, at last: {exc}") from exc
            if self._stop.wait(PAUSES_S[min(losses + waits, len(PAUSES_S)) - 1]):
                raise _Stopped
            self._live.begin(claimed.id)  # What was told until now is void.

    def _judge_with_room(self, claimed: queue.Claimed, *, again: bool) -> queue.Found:
        """Judge a kernel once; what it lacked for want of room, or ended from outside, is not held against it.

        Raises:
            _Again: that may be so, and it may be judged ``again``. What a kernel took itself is there by now.
        """
        found = self._judge(claimed)
        if again and not found.summary.accepted:
            if short := shortage(self._rooms):
                raise _Again(short)
            if was_ended(found.verdicts):
                raise _Again("a process may have been ended from outside")
        self._done += 1
        self._gives_none_since = None
        return found

    def _bear(self, exc: MachineFailed) -> None:
        """Wait for a machine that gives no processes, but not for one that is broken.

        Raises:
            MachineFailed: it is.
        """
        since = self._gives_none_since = self._gives_none_since or time.monotonic()
        if time.monotonic() - since > BROKEN_S:
            raise MachineFailed(f"{exc}; {HOW_TO_GO_ON}") from exc
        logger.warning("%s; judging goes on when it does", exc)

    def _give_back(self, claimed: queue.Claimed) -> None:
        with contextlib.suppress(StoreAway):  # Then the claim runs out.
            queue.release(self._database, claimed.claim)

    def _judge(self, claimed: queue.Claimed) -> queue.Found:
        judge = self.judges[claimed.suite]
        verdicts: list[Verdict] = []
        timed: dict[str, TimedCase] = {}

        def told(found: Told) -> None:
            if self._stop.is_set():
                raise _Stopped
            self._live.tell(claimed.id, found)
            if isinstance(found, TimedCase):
                timed[found.case] = found
            else:
                verdicts.append(found)

        started = time.monotonic()
        try:
            with self._as_file(claimed) as file:
                kernel = judge.kernel_in(file, claimed.task)
                hash_of_review = reviewed_hash(kernel)
                judged = judge.judge_kernel(claimed.task, kernel, most_s=self._most_s, told=told)
        except BadInput as exc:
            planned = judge.planned(claimed.task, None)
            return queue.Found(
                kernel_hash=None,
                dsl=None,
                summary=summarise_op(planned, ()),
                by_dtype={},
                detail=str(exc).replace(str(self._file(claimed)), "the source"),
                verdicts=(),
                timed=(),
                device_s=time.monotonic() - started,
            )
        final = [timed[each.case].told_by(each) if each.case in timed else each for each in verdicts]
        return queue.Found(
            kernel_hash=judged.kernel_hash,
            dsl=judged.dsl,
            summary=judged.summary,
            by_dtype=summarise_by_dtype(judge.planned(claimed.task, kernel), final),
            detail=why_not(final),
            verdicts=tuple(final),
            timed=tuple(timed.values()),
            device_s=judged.device_s,
            ceilings=judge.clock.ceilings if judge.clock else None,
            reviewed_hash=hash_of_review,
            entry_file=None if hash_of_review is None else kernel.entry.rpartition(":")[0],
        )

    def _file(self, claimed: queue.Claimed) -> Path:
        return self._folder / str(claimed.id) / "kernel.py"

    @contextlib.contextmanager
    def _as_file(self, claimed: queue.Claimed) -> Iterator[Path]:
        file = self._file(claimed)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, claimed.source.encode())
            yield file
        finally:
            # With what a server that was killed while it wrote may have left there.
            shutil.rmtree(file.parent, ignore_errors=True)

    def _persistently(self, act: Callable[[], bool]) -> bool:
        """Do what needs the database, however long it is away; what was judged is not judged again for it."""
        while True:
            try:
                return act()
            except StoreAway as exc:
                self._tell_away(exc)
                if self._stop.wait(AWAY_S):
                    return False

    def _tell_away(self, exc: StoreAway) -> None:
        now = time.monotonic()
        if now - self._told_away > TOLD_S:
            self._told_away = now
            logger.warning("the database does not answer: %s", exc)

    def _renew(self, _: str) -> None:
        while not self._stop.wait(RENEWAL_S):
            if claims := set(self._claims):
                with contextlib.suppress(StoreAway):
                    queue.renew(self._database, claims)


def was_ended(verdicts: Sequence[Verdict]) -> bool:
    """Whether all that is held against a kernel is that processes ended which somebody else may have ended.

    The system does when it has no memory left. A kernel that does it itself does it again.
    """
    against = [verdict for verdict in verdicts if verdict.counts_against]
    ended = [any(sign in verdict.detail for sign in SIGNS_OF_AN_END) for verdict in against]
    rest = (verdict.status for verdict, told in zip(against, ended, strict=True) if not told)
    return any(ended) and all(status is Status.NOT_RUN for status in rest)


def rules_of(judge: Judge) -> str:
    """Names what decides a judge's verdicts and, where it times, the device: servers of one queue may have several.

    Paths of data sets and problems have no part in it, only their contents; nor has the number of a device.
    """
    options = judge.options
    selection = msgspec.structs.replace(options.selection, dataset=None, problems=None)
    decides = msgspec.structs.replace(options, device=options.device.partition(":")[0], selection=selection)
    timed_on = "" if options.timing == "off" else judge.environment.device_name
    return hashlib.blake2b(msgspec.json.encode((decides, timed_on)), digest_size=16).hexdigest()


def facts_of(judge: Judge, sandbox: tuple[str, ...], missing: Mapping[str, str]) -> str:
    """What a run of a judge's suite is judged by, as JSON."""
    facts = {
        "options": judge.options,
        "environment": judge.environment,
        "sandbox": sandbox,
        "sandbox_missing": missing,
        "void": judge.void,
    }
    return msgspec.json.encode(facts).decode()
