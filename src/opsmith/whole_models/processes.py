"""Processes of the judge of whole models: started by one that has torch imported, asked one thing at a time."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from opsmith.core.verdict import Status
from opsmith.whole_models.messages import Failed, Reply, Request

#: What the parent of the processes imports.
_PRELOADED = ["opsmith.whole_models.serving", "torch._dynamo"]
#: Of what a process printed, the last lines that are kept, and their length.
_EVIDENCE_LINES, _LINE_CHARACTERS = 12, 400
#: That a process gets to end by itself.
ENDING_TIMEOUT_S = 5.0
#: A package that enables kernels when torch is imported would enable them in the reference too.
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"

Answered = TypeVar("Answered")


class Unanswered(Exception):
    """A process raised, died or took too long; the message says what happened, in one line.

    Attributes:
        status: ERROR, LOAD_FAILED, OUT_OF_MEMORY, CRASHED or TIMEOUT.
        evidence: a traceback's end, or the end of what the process printed.
    """

    def __init__(self, status: Status, detail: str, evidence: tuple[str, ...] = ()) -> None:
        super().__init__(detail)
        self.status, self.evidence = status, evidence


class Process:
    """One process, which serves requests until it is closed.

    Args:
        log: the file that takes what it prints.
        seen: what its environment has besides: which device it sees.
    """

    def __init__(self, log: Path, seen: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._log = log
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, str(log), dict(seen)), daemon=True)
        with _no_autoload():  # The first process starts the one that forks them all.
            self._process.start()
        theirs.close()
        self._waits = True

    def ask(self, request: Request, reply: type[Answered], *, timeout_s: float) -> Answered:
        """Send a request and wait for its reply.

        Raises:
            Unanswered: there is none.
        """
        self._waits = False
        try:
            self._connection.send_bytes(msgspec.msgpack.encode(request))
            if not self._connection.poll(timeout_s):
                raise Unanswered(Status.TIMEOUT, f"took longer than {timeout_s:g} s", self._printed())
            answer = msgspec.msgpack.decode(self._connection.recv_bytes(), type=Reply)
        except (EOFError, OSError) as exc:
            self._process.join(timeout=ENDING_TIMEOUT_S)
            detail = f"its process ended with status {self._process.exitcode}"
            raise Unanswered(Status.CRASHED, detail, self._printed()) from exc
        self._waits = True
        if isinstance(answer, Failed):
            raise Unanswered(answer.status, answer.detail, answer.evidence)
        assert isinstance(answer, reply)
        return answer

    def close(self) -> None:
        """End the process and what it has started; one that waits for a request ends by itself."""
        assert self._process.pid is not None
        self._connection.close()
        self._process.join(timeout=ENDING_TIMEOUT_S if self._waits else 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()

    def _printed(self) -> tuple[str, ...]:
        with contextlib.suppress(OSError):
            lines = self._log.read_text(errors="replace").splitlines()
            return tuple(line[:_LINE_CHARACTERS] for line in lines[-_EVIDENCE_LINES:] if line.strip())
        return ()


@contextlib.contextmanager
def process(log: Path, seen: Mapping[str, str]) -> Iterator[Process]:
    """A process for the length of a ``with`` statement."""
    started = Process(log, seen)
    try:
        yield started
    finally:
        started.close()


@contextlib.contextmanager
def _no_autoload() -> Iterator[None]:
    before = os.environ.get(_AUTOLOAD)
    os.environ[_AUTOLOAD] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_AUTOLOAD]
        else:
            os.environ[_AUTOLOAD] = before


def _serve(connection: Connection, log: str, seen: dict[str, str]) -> None:
    """Answer requests until the judge is gone; all that models and compilers print goes to the log."""
    from opsmith.whole_models.serving import Server

    os.environ |= seen  # The driver has not been asked yet.
    os.setpgrp()  # What compilers start ends with it.
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for printed in (1, 2):
        os.dup2(descriptor, printed)
    server = Server()
    while True:
        try:
            request: Any = msgspec.msgpack.decode(connection.recv_bytes(), type=Request)
        except EOFError:
            return
        connection.send_bytes(msgspec.msgpack.encode(server.answer(request)))
