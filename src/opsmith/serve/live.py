"""What is found while it is found, for whoever follows; what is finished is in the database."""

from __future__ import annotations

import threading

import msgspec

from opsmith.core.run import TimedCase
from opsmith.core.verdict import Verdict
from opsmith.session import Found


class Live:
    """The verdicts of the judgements that this server makes at the moment; used from several threads."""

    def __init__(self) -> None:
        self._told: dict[int, list[bytes]] = {}
        self._timed: dict[int, int] = {}
        self._lock = threading.Lock()

    def begin(self, judgement: int) -> None:
        """From now on, things are found about a judgement."""
        with self._lock:
            self._told[judgement], self._timed[judgement] = [], 0

    def tell(self, judgement: int, found: Found) -> None:
        """Something was found."""
        with self._lock:
            if isinstance(found, Verdict):
                self._told[judgement].append(msgspec.json.encode(found))
            elif isinstance(found, TimedCase):
                self._timed[judgement] += 1

    def end(self, judgement: int) -> None:
        """What was found is in the database, or is void."""
        with self._lock:
            self._told.pop(judgement, None)
            self._timed.pop(judgement, None)

    def since(self, judgement: int, number: int) -> list[bytes] | None:
        """The verdicts from ``number`` on, as JSON; None where the judgement is not made here and now."""
        with self._lock:
            told = self._told.get(judgement)
            return None if told is None else told[number:]

    def counts(self) -> dict[int, tuple[int, int]]:
        """Judgement -> verdicts found and cases timed so far."""
        with self._lock:
            return {judgement: (len(told), self._timed[judgement]) for judgement, told in self._told.items()}
