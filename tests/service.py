"""A service whose judge reads the verdict in the kernel's source: everything but the judging is real."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import text
from tests.campaigns import ReadingSession

from opsmith.backends.file import KernelFile
from opsmith.core.kernel import Kernel
from opsmith.core.op import folder_name
from opsmith.core.run import PlannedOp
from opsmith.core.task import Task
from opsmith.errors import BadInput
from opsmith.serve.app import make_app
from opsmith.serve.judging import Judging, facts_of
from opsmith.serve.live import Live
from opsmith.serve.metrics import Metrics
from opsmith.serve.service import Service
from opsmith.serve.settings import Limits
from opsmith.serve.store.database import Database
from opsmith.serve.store.schema import metadata
from opsmith.serve.store.submissions import SuiteFacts
from opsmith.serve.store.tokens import Role, create_token
from opsmith.session import Judged, Watch

SUITE = "opinfo"
TASKS = ("relu.default", "exp.default", "add.Tensor")


def emptied(url: str) -> None:
    """Drop the tables of a PostgreSQL database."""
    with contextlib.closing(Database(url)) as database, database.writing() as connection:
        metadata.drop_all(connection)
        connection.execute(text("DROP TABLE IF EXISTS alembic_version"))


def kernel(comment: str, op: str = "relu.default") -> str:
    """A source that tells the judge what it is worth."""
    return f"def {folder_name(op)}_kernel_impl(self):\n    return self  # {comment}\n"


class ReadingJudge(ReadingSession):
    """Stands in for the session of one suite; a kernel with ``slow=0.3`` takes so many seconds."""

    clock = None
    void: Mapping[str, str] = {}

    def kernel_in(self, source: Path, task: str) -> Kernel:
        """As the session's own."""
        found = KernelFile(source).kernel_for(Task(name=task, op=self.tasks[task].op, suite=SUITE))
        if found is None:
            raise BadInput(f"{source} defines no kernel for {task}")
        return found

    def planned(self, task: str, kernel: Kernel | None) -> PlannedOp:
        """One case."""
        return PlannedOp(op=task, schema="", cases=1, error_cases=0, kernel=kernel, kernel_hash="k")

    def judge_kernel(
        self, task: str, kernel: Kernel, *, most_s: float, told: Any = None, watch: Watch | None = None
    ) -> Judged:
        """The verdict that the source asks for."""
        judged = super().judge_kernel(task, kernel, most_s=most_s, watch=watch)
        for verdict in judged.verdicts:
            told(verdict)
        slow = self.judged[-1].partition("slow=")[2].partition(" ")[0].strip()
        time.sleep(float(slow or 0))
        return judged


class Running:
    """A service in this process.

    Attributes:
        service: its parts.
        secrets: role -> a token.
        judge: who judges.
        failures: what ended the judging.
    """

    def __init__(self, service: Service, judge: ReadingJudge, prefix: str, failures: list[BaseException]) -> None:
        self.service, self.judge, self.failures = service, judge, failures
        self.secrets = {role: create_token(service.database, f"{prefix} {role}", role)[1] for role in Role}
        self.app = make_app(service)

    def client(self, role: Role | None = Role.SUBMITTER, secret: str = "") -> TestClient:
        """Who asks as a role, with a secret, or as nobody."""
        secret = secret or (self.secrets[role] if role else "")
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        return TestClient(self.app, headers=headers, raise_server_exceptions=False)


def wait_until(condition: Any, timeout_s: float = 10.0) -> None:
    """Look again and again until it is true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.02)


@contextlib.contextmanager
def service_in(
    folder: Path, *, jobs: int = 2, judging: bool = True, limits: Limits | None = None, prefix: str = "a", url: str = ""
) -> Iterator[Running]:
    """A service on a database, else on a SQLite file in its folder; the names of its tokens begin with the prefix."""
    with contextlib.closing(Database(url or f"sqlite:///{folder / 'service.sqlite'}")) as database:
        database.migrate()
        judge = ReadingJudge(TASKS)
        metrics, live = Metrics(database), Live()
        failures: list[BaseException] = []
        judges = Judging(
            database,
            {SUITE: judge},
            jobs=jobs,
            live=live,
            metrics=metrics,
            folder=folder / "sources",
            most_s=5.0,
            failed=failures.append,
        )
        facts = facts_of(judge, (), {})
        service = Service(
            database=database,
            judging=judges,
            live=live,
            metrics=metrics,
            limits=limits or Limits(requests_per_s=1e4, burst=10_000, refused_per_minute=10_000),
            facts={
                SUITE: SuiteFacts(tasks_asked=len(TASKS), device_name="a CPU", facts=facts, rules=judges.rules[SUITE])
            },
        )
        with judges if judging else contextlib.nullcontext():
            yield Running(service, judge, prefix, failures)
        assert [] == failures
