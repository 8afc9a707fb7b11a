"""Typed conversations with a referee and a worker, and what their deaths mean."""

from __future__ import annotations

import contextlib
import itertools
import signal
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema
from opsmith.core.verdict import Status
from opsmith.errors import ProtocolError, RefereeFailed
from opsmith.runner.processes import Child, Processes
from opsmith.runner.protocol import Loaded, LoadKernel, Raised, RefereeError, RefereeReply, WorkerReply

#: How long a killed process may take to be reaped before its status is given up on.
REAP_TIMEOUT_S = 5.0
MAX_EVIDENCE_LINES = 12


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits, in seconds.

    Attributes:
        load_s: for loading a kernel; compilers may run during it.
        call_s: for one request to a worker: one case, or one timed block.
        referee_s: for one request to a referee.
    """

    load_s: float = 180.0
    call_s: float = 20.0
    referee_s: float = 180.0


class RefereeDied(Exception):
    """The referee died or hung on a request; a new one takes its place."""


class WorkerFailed(Exception):
    """The worker did not answer a request; it is gone.

    Attributes:
        status: TIMEOUT, CRASHED, OUT_OF_MEMORY or OUTPUT_LIMIT.
        detail: one line that says what was observed.
        evidence: the end of what it printed.
    """

    def __init__(self, status: Status, detail: str, evidence: tuple[str, ...]) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.evidence = evidence


class RefereeLink:
    """A referee that is replaced when it dies."""

    _numbers = itertools.count()

    def __init__(self, processes: Processes, spool: Path, *, device: str, threads: int, limits: Limits) -> None:
        self._processes = processes
        self._config = {"device": device, "spool": str(spool), "threads": threads}
        self._limits = limits
        self._child: Child | None = None

    def ask(self, request: msgspec.Struct, reply_type: type[Any]) -> Any:
        """Send a request and wait for its reply.

        Raises:
            RefereeDied: the process died or hung; the next request goes to a new one.
            RefereeFailed: the referee's own code raised.
        """
        if self._child is None:
            self._child = self._processes.fork("referee", number=next(self._numbers), **self._config)
        try:
            self._child.channel.send(request)
            reply = self._child.channel.receive(RefereeReply, self._limits.referee_s)
        except (OSError, EOFError, ProtocolError) as exc:  # TimeoutError is an OSError
            lines = self._child.last_output().strip().splitlines()
            detail = f"{_describe_end(self._child, exc)}{f' ({lines[-1]})' if lines else ''}"
            self.close()
            raise RefereeDied(detail) from exc
        if isinstance(reply, RefereeError):
            raise RefereeFailed(f"{reply.message}\n{reply.traceback}")
        assert isinstance(reply, reply_type), reply
        return reply

    def close(self) -> None:
        if self._child is not None:
            self._processes.discard(self._child)
            self._child = None


class WorkerLink:
    """A worker, with the next one already forked so that a death costs no waiting."""

    def __init__(self, processes: Processes, *, device: str, builds: Path, threads: int, limits: Limits) -> None:
        self._processes = processes
        self._config = {"device": device, "builds": str(builds), "threads": threads}
        self._limits = limits
        self._child: Child | None = None
        self._spare: Child | None = None
        self._loaded: Kernel | None = None

    def load(self, kernel: Kernel, root: Path | None, schema: OpSchema) -> Raised | None:
        """Make sure that ``kernel`` is loaded; what it raised if it does not load.

        Raises:
            WorkerFailed: the worker died or hung while loading.
        """
        if self._child is not None and self._loaded == kernel:
            return None
        request = LoadKernel(kernel, str(root) if root else None, schema)
        reply = self.ask(request, (Loaded, Raised), timeout_s=self._limits.load_s)
        if isinstance(reply, Raised):
            return reply
        self._loaded = kernel
        return None

    def ask(
        self, request: msgspec.Struct, reply_types: tuple[type[Any], ...], *, timeout_s: float | None = None
    ) -> Any:
        """Send a request and wait for its reply.

        Raises:
            WorkerFailed: the process died, hung, broke a limit or spoke out of protocol.
        """
        if self._child is None:
            self._start()
        child = self._child
        assert child is not None
        child.output_bytes = 0
        try:
            child.channel.send(request)
            reply = child.channel.receive(WorkerReply, timeout_s or self._limits.call_s)
            if not isinstance(reply, reply_types):
                raise ProtocolError(f"the worker answered with {type(reply).__name__}")
        except TimeoutError as exc:
            limit = timeout_s or self._limits.call_s
            raise self._failed(child, Status.TIMEOUT, f"no answer within {limit:g} s") from exc
        except (OSError, EOFError) as exc:
            raise self._failed(child, Status.CRASHED, _describe_end(child, exc)) from exc
        except ProtocolError as exc:
            raise self._failed(child, Status.CRASHED, f"the worker's reply is not of the protocol: {exc}") from exc
        if isinstance(reply, Raised) and reply.kind == "device":
            self.retire()
        return reply

    def _start(self) -> None:
        self._child = self._spare or self._fork()
        self._spare = self._fork()

    def _fork(self) -> Child:
        return self._processes.fork("worker", **self._config)

    def _failed(self, child: Child, status: Status, detail: str) -> WorkerFailed:
        if child.killed_for is not None:
            status = child.killed_for
            detail = _LIMIT_DETAILS[status]
        evidence = tuple(child.last_output().strip().splitlines()[-MAX_EVIDENCE_LINES:])
        self.retire()
        return WorkerFailed(status, detail, evidence)

    def retire(self) -> None:
        """End the current worker; the next request goes to a fresh one."""
        if self._child is not None:
            self._processes.discard(self._child)
        self._child = None
        self._loaded = None

    def close(self) -> None:
        self.retire()
        if self._spare is not None:
            self._processes.discard(self._spare)
            self._spare = None


_LIMIT_DETAILS = {
    Status.OUT_OF_MEMORY: "killed: it used more memory than a worker may",
    Status.OUTPUT_LIMIT: "killed: it printed more than a worker may",
}


def _describe_end(child: Child, error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer within the time limit"
    status = child.wait(REAP_TIMEOUT_S)
    if status is None:
        return f"closed its channel and lived on ({error})"
    if status < 0:
        name = str(-status)
        with contextlib.suppress(ValueError):
            name = signal.Signals(-status).name
        return f"the process was ended by {name}"
    return f"the process exited with status {status} in the middle of a request"
