"""Starts everything in order, and ends it: the database, the judge's processes and threads, and the HTTP server."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import uvicorn

from opsmith.core.cache import build_folder
from opsmith.core.run import Options, RunDirectory
from opsmith.errors import BadInput, Unconfined
from opsmith.pipeline import Progress
from opsmith.serve.app import make_app
from opsmith.serve.confinement import refusal
from opsmith.serve.connections import Connections
from opsmith.serve.judging import Judging, facts_of
from opsmith.serve.live import Live
from opsmith.serve.metrics import Metrics
from opsmith.serve.service import Service
from opsmith.serve.settings import Limits
from opsmith.serve.store.database import Database
from opsmith.serve.store.imports import keep_run
from opsmith.serve.store.queue import adopt, count_foreign, release_all
from opsmith.serve.store.submissions import SuiteFacts
from opsmith.serve.store.tokens import list_tokens
from opsmith.session import Session

logger = logging.getLogger(__name__)

#: Connections that follow something are cut so many seconds after the server was told to end.
GRACE_S = 3


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is started with.

    Attributes:
        suites: what is asked and how, one for each suite.
        data: the folder of a SQLite file and of what is being judged.
        database_url: where submissions and verdicts are kept.
        host: address to listen on.
        port: to listen on; 0 for one that is free.
        jobs: kernels judged at a time, of each suite.
        most_judging_s: after so many seconds no further case of a kernel is begun.
        every_layer: do not start where a layer of the sandbox is missing.
        runs: run directories that are shown as well.
        limits: what a client may ask.
        proxies: networks of proxies that are believed whom they ask for.
    """

    suites: tuple[Options, ...]
    data: Path
    database_url: str
    host: str
    port: int
    jobs: int
    most_judging_s: float
    every_layer: bool
    runs: tuple[Path, ...] = ()
    limits: Limits = Limits()
    proxies: tuple[str, ...] = ()


def serve(settings: Settings, *, progress: Progress, ready: Callable[[str], None]) -> None:
    """Serve until a signal ends it.

    Args:
        settings: what it is started with.
        progress: told how far starting is.
        ready: told the URL, once requests are answered.

    Raises:
        UsageError: the server cannot start as asked: a layer of the sandbox, the database or the port.
        RefereeFailed: the trusted processes do not start, or failed while judging.
    """
    with contextlib.ExitStack() as held:
        listener = held.enter_context(_listen(settings.host, settings.port))
        with _usable(settings.data):
            settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            held.enter_context(_own(settings.data))
        database = Database(settings.database_url)
        held.callback(database.close)
        with database.starting() as is_alone:
            database.migrate()
            if is_alone and (freed := release_all(database)):
                logger.warning("%d kernels were being judged when the last server ended; they are judged again", freed)
        if not list_tokens(database):
            logger.warning("nobody has a token yet: opsmith token create NAME --role admin --db %s", database)
        for run in settings.runs:
            keep_run(database, RunDirectory.open(run))
        sessions = _open_sessions(settings, database, held, progress)
        metrics, live = Metrics(database), Live()
        failures: list[BaseException] = []

        def failed(exc: BaseException) -> None:
            failures.append(exc)
            server.should_exit = True

        judging = Judging(
            database,
            {session.options.suite: session for session in sessions},
            jobs=settings.jobs,
            live=live,
            metrics=metrics,
            folder=settings.data / "sources",
            rooms=(Path(tempfile.gettempdir()), build_folder()),
            most_s=settings.most_judging_s,
            failed=failed,
        )
        facts = {
            session.options.suite: SuiteFacts(
                tasks_asked=len(session.tasks),
                device_name=session.environment.device_name,
                facts=facts_of(session, session.sandbox, session.sandbox_missing),
                rules=judging.rules[session.options.suite],
            )
            for session in sessions
        }
        for suite, rules in judging.rules.items():
            adopt(database, suite, rules)
            if waiting := count_foreign(database, suite, rules):
                logger.warning("%d kernels for %s wait for a server with the options of their run", waiting, suite)
        service = Service(
            database=database, judging=judging, live=live, metrics=metrics, limits=settings.limits, facts=facts
        )
        server = Server(service, settings.proxies)
        held.enter_context(judging)
        host, port = listener.getsockname()[:2]
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        _run(server, listener)
        if failures:
            raise failures[0]


class Server(uvicorn.Server):
    """Serves over HTTP, with limits to what a connection may do.

    Args:
        service: is served.
        proxies: networks of the only clients that are believed whom they ask for.
    """

    def __init__(self, service: Service, proxies: Sequence[str]) -> None:
        super().__init__(
            uvicorn.Config(
                make_app(service),
                log_level="warning",
                lifespan="off",
                timeout_graceful_shutdown=GRACE_S,
                server_header=False,
                http=Connections(service.limits.connections, proxies).protocol(),
                ws="none",
                proxy_headers=bool(proxies),
                forwarded_allow_ips=list(proxies),
            )
        )
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End; whoever follows something is let go first."""
        self._service.ending.set()
        await super().shutdown(sockets)


@contextlib.contextmanager
def _usable(data: Path) -> Iterator[None]:
    """Tell a folder that cannot be used from a mistake of ours."""
    try:
        yield
    except OSError as exc:
        raise BadInput(f"{data} cannot be used: {exc.strerror}; make room there, or choose another --data") from exc


@contextlib.contextmanager
def _own(data: Path) -> Iterator[None]:
    """Have the folder alone: a server removes what an earlier one left there.

    Raises:
        BadInput: another server has it.
    """
    with (data / "server.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise BadInput(
                f"another server has the folder {data}; give this one a --data of its own, and the same --db"
            ) from exc
        yield


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until a signal; then everything else is ended in order, which the signal itself would not allow."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn sends itself again what it has heard.
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)


def _listen(host: str, port: int) -> socket.socket:
    """Have the port before anything else is started."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512
        )
    except OSError as exc:
        raise BadInput(f"cannot listen on {host}:{port}: {exc.strerror}; choose another --host or --port") from exc


def _open_sessions(
    settings: Settings, database: Database, held: contextlib.ExitStack, progress: Progress
) -> Sequence[Session]:
    judged = settings.data / "judged"
    for left in (judged, settings.data / "sources"):  # Copies of an earlier server's kernels.
        shutil.rmtree(left, ignore_errors=True)
    sessions = []
    for options in settings.suites:
        folder = judged / options.suite
        with _usable(settings.data):
            folder.mkdir(parents=True)
        session = Session(
            options,
            folder,
            withheld=[settings.data, *database.files],
            jobs=settings.jobs,
            progress=progress,
            every_layer=settings.every_layer,
        )
        try:
            sessions.append(held.enter_context(session))
        except Unconfined as exc:
            raise refusal(exc) from exc
    return sessions
