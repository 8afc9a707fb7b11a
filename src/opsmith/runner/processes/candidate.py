"""What a slot has run a kernel: one worker, or the ranks that run it together."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from opsmith.core.case import CaseRef
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.worker_messages import LentCall, Noticed, Raised, RunCalls, ShowOutcomes


class Candidate(Protocol):
    """A :class:`~.worker_link.WorkerLink` or a :class:`~.rank_group.RankGroup`.

    Attributes:
        wanted_spares: processes that are kept ready for the next kernel.
        notices: what is held against the kernel, told with the reply to the last request.
        load_changes: what of Python, torch or opsmith the kernel replaced while it was loaded.
    """

    wanted_spares: int
    notices: tuple[Noticed, ...]
    load_changes: tuple[str, ...]

    def finish_by(self, deadline: float) -> None:
        """Wait for no answer beyond a moment of the monotonic clock."""
        ...

    def prepare(self) -> None:
        """Fork the processes that are kept ready."""
        ...

    def expect(self, kernels: int) -> None:
        """Keep no more processes ready than the next kernel and so many after it need."""
        ...

    def resize(self, ranks: int | None) -> None:
        """Be as many processes as the next case has ranks; None: it is one process's."""
        ...

    def load(self, kernel: Kernel, root: Path | None, schema: OpSchema, policy: str | None = None) -> Raised | None:
        """Make sure that ``kernel`` is loaded; what it raised if it does not load.

        Raises:
            WorkerFailed: a process died or hung while loading.
        """
        ...

    def call_to_send(self, case: CaseRef, spool: Spool) -> bytes | LentCall:
        """A serialized call in the form in which the next request carries it."""
        ...

    def ask(self, request: RunCalls | ShowOutcomes, reply_types: tuple[type[Any], ...]) -> Any:
        """Send a request and wait for its reply.

        Raises:
            WorkerFailed: a process died, hung, broke a limit or spoke out of protocol.
        """
        ...

    def outcome_folders(self) -> tuple[str, tuple[str, ...]]:
        """Where large outcomes lie, as ``Compare`` says it: the folder of a worker, and those of ranks."""
        ...

    def timed_worker(self) -> WorkerLink:
        """The worker, for the clock; ranks are not timed and have none."""
        ...

    def give_memory_back(self) -> None:
        """Give the device what is kept for the next call."""
        ...

    def retire(self) -> None:
        """End the processes that have run the kernel; the next request goes to fresh ones."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...
