"""A nursery: the zygote that one slot's workers are forked from, started when the first one is."""

from __future__ import annotations

import threading
import time
from typing import Any

from opsmith.runner.processes.children import RESTART_PAUSES_S, Child, Processes
from opsmith.runner.processes.zygote_link import ZygoteGone, ZygoteLink
from opsmith.runner.sandbox.reach import Reach


class Nursery:
    """Forks workers that share a network, shared memory and a view of the file system with nobody else.

    Args:
        processes: starts it.
        reach: where its workers find and may not find things.
    """

    def __init__(self, processes: Processes, reach: Reach) -> None:
        self._processes = processes
        self._reach = reach
        self._zygote: ZygoteLink | None = None
        self._starting = threading.Lock()  # Ranks are forked by a thread each.

    def fork(self, config: dict[str, Any]) -> Child:
        """Fork a worker; ``config`` goes to its ``serve``. A nursery that was lost is replaced.

        Raises:
            ZygoteGone: one nursery after another is lost.
            MachineFailed: no process is to be had.
        """
        for pause_s in RESTART_PAUSES_S:
            try:
                return self._fork(config)
            except ZygoteGone:
                self.end()
                time.sleep(pause_s)
        return self._fork(config)

    def _fork(self, config: dict[str, Any]) -> Child:
        with self._starting:
            if self._zygote is None:
                self._zygote = self._processes.start_nursery(self._reach)
            zygote = self._zygote
        return self._processes.fork("worker", config, zygote)

    def end(self) -> None:
        """End it with all of its workers; the next fork starts another one."""
        with self._starting:
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None
