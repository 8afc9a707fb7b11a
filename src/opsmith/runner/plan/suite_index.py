"""Which suite entry calls which op: a cache, so that asking for one op starts in seconds.

It holds names only, never values, and is keyed by everything that decides them. A missing or
damaged index costs one full enumeration, nothing else. For the versions of torch that it was tested with, opsmith
brings what its operator suite calls in any dtype (``called_ops.json``, made by ``python -m tests.record_called_ops``),
so that not even the first question costs one. Another torch, or another type of device, calls nearly the same: there
the entries are enumerated that call an op anywhere.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

import msgspec

from opsmith.core.cache import cache_folder
from opsmith.core.run import write_atomically

#: suite -> minor version of torch -> type of device -> entry -> overloads that it calls in some dtype.
_BROUGHT = Path(__file__).with_name("called_ops.json")


class SuiteIndex:
    """entry -> overloads that it calls, for one suite, torch, device type and dtype."""

    def __init__(self, suite: str, *, torch: str, device: str, dtype: str) -> None:
        name = f"{suite}-{torch}-{device.partition(':')[0]}-{dtype}.json"
        self._path = cache_folder() / "index" / name
        self._key = suite, ".".join(torch.split(".")[:2]), device.partition(":")[0]

    def load(self) -> dict[str, list[str]] | None:
        """What is known of the entries; of some it may hold ops of other dtypes too. None: nothing is."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, list[str]])
        except (OSError, msgspec.DecodeError):
            suite, minor, device = self._key
            return brought().get(suite, {}).get(minor, {}).get(device)

    def elsewhere(self) -> dict[str, set[str]]:
        """What the entries call with other versions of torch and on other types of device, as far as that is known."""
        found: dict[str, set[str]] = {}
        for devices in brought().get(self._key[0], {}).values():
            for entries in devices.values():
                for entry, ops in entries.items():
                    found.setdefault(entry, set()).update(ops)
        return found

    def save(self, ops_of_entry: dict[str, list[str]]) -> None:
        """Keep it, where there is a place."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, msgspec.json.encode(ops_of_entry))


@functools.cache
def brought() -> dict[str, dict[str, dict[str, dict[str, list[str]]]]]:
    """What opsmith knows of suites before anybody asked them; see :data:`_BROUGHT`."""
    return msgspec.json.decode(_BROUGHT.read_bytes(), type=dict[str, dict[str, dict[str, dict[str, list[str]]]]])
