"""How long kernels took to be judged on this kind of device, so that those that take long can begin first.

The number of cases says little: one kernel is compiled for longer than another one is judged on a hundred. A run that
begins the longest one last waits for it with all but one of its seats idle.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from opsmith.core.cache import cache_folder
from opsmith.core.run import write_atomically
from opsmith.runner.job import Job

#: What is kept; the oldest goes first.
MOST_KEPT = 20_000


class Durations:
    """Seconds that each op of a backend took when it was judged last, in a file.

    Args:
        path: of the file, which need not be there. One that cannot be read counts as empty: it is made anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()
        try:
            self._seconds = msgspec.json.decode(path.read_bytes(), type=dict[str, float])
        except (OSError, msgspec.DecodeError):
            self._seconds = {}

    @classmethod
    def of(cls, device_name: str) -> Durations:
        """Those of a kind of device on this machine."""
        return cls(cache_folder() / "durations" / f"{re.sub(r'[^a-zA-Z0-9.-]+', '-', device_name)}.json")

    def longest_first(self, families: Iterable[Sequence[Job]]) -> list[Sequence[Job]]:
        """Order families of jobs by what they took before; one that is new is taken for average, by its cases."""
        families = list(families)
        known = {number: seconds for number, family in enumerate(families) if (seconds := self._before(family))}
        cases = sum(_cases(families[number]) for number in known)
        a_case = sum(known.values()) / cases if cases else 1.0
        expected = [known.get(number, a_case * _cases(family)) for number, family in enumerate(families)]
        return [families[number] for number in sorted(range(len(families)), key=lambda number: -expected[number])]

    def _before(self, family: Sequence[Job]) -> float | None:
        """Seconds of a family of which all jobs are known."""
        found = [self._seconds.get(_name(job)) for job in family]
        return sum(seconds for seconds in found if seconds is not None) if None not in found else None

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
        with self._writing:
            newest = dict(list(self._seconds.items())[-MOST_KEPT:])
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, msgspec.json.encode(newest))


def _cases(family: Sequence[Job]) -> int:
    return sum(len(job.cases) for job in family)


def _name(job: Job) -> str:
    return f"{job.kernel.backend} {job.schema.name}"
