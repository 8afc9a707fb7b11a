"""What the end of a child means."""

from __future__ import annotations

import contextlib
import signal

from opsmith.core.conduct import Held
from opsmith.core.verdict import Status
from opsmith.errors import InternalError
from opsmith.runner.processes.children import Child

#: How long a killed process may take to be reaped before its status is given up on.
REAP_TIMEOUT_S = 2.0
LIMIT_DETAILS = {
    Status.OUT_OF_MEMORY: "killed: it used more memory than a worker may",
    Status.OUTPUT_LIMIT: "killed: it printed more than a worker may",
    Status.CRASHED: "killed: it had more processes or threads than a worker may",
}


class RefereeDied(InternalError):
    """The referee died on a request; a new one takes its place."""


class RefereeHung(RefereeDied):
    """The referee gave no answer in time and was killed; a new one takes its place.

    Eager has calls that never return: a polynomial of degree 1e20 is a loop of so many steps. What such a loop runs on
    a device cannot be interrupted, and a process that has it may take long to die; nobody waits for that.
    """


class WorkerFailed(Exception):
    """The worker did not answer a request; it is gone.

    Attributes:
        status: TIMEOUT, CRASHED, OUT_OF_MEMORY or OUTPUT_LIMIT.
        detail: one line that says what was observed.
        evidence: the end of what it printed.
        notices: what is held against the kernel, told before that.
    """

    def __init__(self, status: Status, detail: str, evidence: tuple[str, ...], notices: tuple[Held, ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.evidence = evidence
        self.notices = notices


def describe_end(child: Child, error: Exception) -> str:
    """How a child ended that should have answered."""
    status = child.wait(REAP_TIMEOUT_S)
    if status is None and child.zygote.gone:
        return "the process ended the one that had started it"
    if status is None:
        return f"closed its channel and lived on ({error})"
    if status < 0:
        name = str(-status)
        with contextlib.suppress(ValueError):
            name = signal.Signals(-status).name
        return f"the process was ended by {name}"
    return f"the process exited with status {status} in the middle of a request"
