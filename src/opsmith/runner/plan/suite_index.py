"""Which suite entry calls which op: a cache, so that asking for one op starts in seconds.

It holds names only, never values, and is keyed by everything that decides them. A missing or
damaged index costs one full enumeration, nothing else.
"""

from __future__ import annotations

import msgspec

from opsmith.core.cache import cache_folder
from opsmith.core.run import write_atomically


class SuiteIndex:
    """entry -> overloads that it calls, for one suite, torch, device type and dtype."""

    def __init__(self, suite: str, *, torch: str, device: str, dtype: str) -> None:
        name = f"{suite}-{torch}-{device.partition(':')[0]}-{dtype}.json"
        self._path = cache_folder() / "index" / name

    def load(self) -> dict[str, list[str]] | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, list[str]])
        except (OSError, msgspec.DecodeError):
            return None

    def save(self, ops_of_entry: dict[str, list[str]]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, msgspec.json.encode(ops_of_entry))
