"""What every request reaches: the database, the judges, and what is live."""

from __future__ import annotations

import threading

import msgspec

from opsmith.errors import UnknownName, VoidTask
from opsmith.serve.judging import Judge, Judging
from opsmith.serve.live import Live
from opsmith.serve.metrics import Metrics
from opsmith.serve.settings import Limits
from opsmith.serve.store.database import Database
from opsmith.serve.store.submissions import Candidate, SuiteFacts, Wanted, submit
from opsmith.serve.store.tokens import Token


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a running server.

    Attributes:
        database: what is remembered.
        judging: who judges.
        live: what is found at the moment.
        metrics: what is counted.
        limits: what a client may ask.
        facts: suite -> what its runs are judged by.
        ending: set once the server is told to end: what is followed or waited for ends by itself then.
    """

    database: Database
    judging: Judging
    live: Live
    metrics: Metrics
    limits: Limits
    facts: dict[str, SuiteFacts]
    ending: threading.Event = msgspec.field(default_factory=threading.Event)

    @property
    def suites(self) -> list[str]:
        """In the order in which the server was given them."""
        return list(self.judging.judges)

    def judge(self, suite: str) -> Judge:
        """Who judges a suite.

        Raises:
            UnknownName: nobody does.
        """
        if suite not in self.judging.judges:
            raise UnknownName("suite", suite, self.suites)
        return self.judging.judges[suite]

    def submit(
        self,
        token: Token,
        candidates: tuple[Candidate, ...],
        *,
        suite: str | None,
        run: str | None,
        request_key: str | None,
    ) -> tuple[str, bool]:
        """Put kernels into the queue.

        Returns:
            the submission's id, and whether it is new.

        Raises:
            UnknownName: there is no such suite or task here.
            VoidTask: a task is void.
            KeyUsed: the key named another request.
            QuotaExceeded: the token's limit is reached.
            OtherRules: the run is judged under other options than this server's.
        """
        suite = suite or self.suites[0]
        judge = self.judge(suite)
        tasks = judge.tasks
        for candidate in candidates:
            if candidate.task in judge.void:
                raise VoidTask(candidate.task, judge.void[candidate.task])
            if candidate.task not in tasks:
                raise UnknownName("task", candidate.task, tasks)
        origin = candidates[0].provenance
        contender = origin.model or origin.author or token.name
        wanted = Wanted(suite=suite, run=run or token.name, contender=contender, candidates=candidates)
        made, new = submit(self.database, token, wanted, self.facts[suite], request_key=request_key)
        if new:
            self.judging.wake()
        return made, new
