"""How long kernels took to be judged on this kind of device, so that those that take long can begin first.

The number of cases says little: one kernel is compiled for longer than another one is judged on a hundred. A run that
begins the longest one last waits for it with all but one of its slots idle.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from opsmith.core.cache import cache_folder
from opsmith.core.run import write_atomically
from opsmith.runner.fleet.code_sizes import code_bytes
from opsmith.runner.protocol.job import Job

#: Of kernels that nothing is known of: some 2.5 s each on an H100, of which a third is judging (313 of the shipped
#: backend, 2,602 cases, 33 MB of code). The guess only orders them.
A_CASE_S = 0.1
CODE_BYTES_A_S = 65_000
#: What is kept; the oldest goes first.
MOST_KEPT = 20_000


class Durations:
    """Seconds that each op of a backend took when it was judged last, in a file.

    Args:
        path: of the file, which need not be there; None keeps nothing. One that cannot be read counts as empty, and is
            made anew; one that cannot be written costs the order of the next run.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._writing = threading.Lock()
        self._seconds: dict[str, float] = {}
        if path is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._seconds = msgspec.json.decode(path.read_bytes(), type=dict[str, float])

    @classmethod
    def of(cls, device_name: str) -> Durations:
        """Those of a kind of device on this machine."""
        return cls(cache_folder() / "durations" / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', device_name)}.json")

    def longest_first(self, families: Sequence[list[Job]]) -> list[list[Job]]:
        """Order families of jobs by what they took before; of one that is new it is guessed."""
        known = [family for family in families if self._before(family)]
        guessed = sum(map(_guessed, known))
        scale = sum(map(self._before, known)) / guessed if guessed else 1.0
        return sorted(families, key=lambda family: self._before(family) or scale * _guessed(family), reverse=True)

    def _before(self, family: Sequence[Job]) -> float:
        """Seconds of a family; 0 where not all of its jobs are known."""
        found = [self._seconds.get(_name(job)) for job in family]
        return 0.0 if None in found else sum(filter(None, found))

    def note(self, family: Sequence[Job], seconds: float) -> None:
        """Remember what a family took that was judged from its first case to its last one."""
        cases = _cases(family)
        if any(job.earlier for job in family) or not cases:
            return
        with self._writing:
            for job in family:
                self._seconds.pop(_name(job), None)  # To the end: it is the newest.
                self._seconds[_name(job)] = round(seconds * len(job.cases) / cases, 3)

    def save(self) -> None:
        """Write the file."""
        if self._path is None:
            return
        with self._writing, contextlib.suppress(OSError):
            newest = dict(list(self._seconds.items())[-MOST_KEPT:])
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, msgspec.json.encode(newest))


def _guessed(family: Sequence[Job]) -> float:
    """Seconds that judging a family may take: by its cases, and by the code that is compiled for them."""
    return A_CASE_S * _cases(family) + code_bytes(family[0].kernel, family[0].root) / CODE_BYTES_A_S


def _cases(family: Sequence[Job]) -> int:
    return sum(len(job.cases) for job in family)


def _name(job: Job) -> str:
    return f"{job.kernel.backend} {job.schema.name}"
