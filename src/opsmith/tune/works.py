"""What is measured, and the table that it is written to."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.cache import cache_folder
from opsmith.core.case import CallRecord
from opsmith.errors import BadInput

FORMAT = 1


class TunedWork(msgspec.Struct, frozen=True, kw_only=True):
    """A work of a family of kernels, and a call that asks it.

    Attributes:
        family: see :class:`opsmith.kernels.common.tuning.Family`.
        work: its name in tables.
        op: the overload of the call.
        dtype: that the call was recorded with.
        entry: the kernel, as the manifest has it.
        record: of the call.
        rule: what the family's rule chooses.
        candidates: what else is worth timing.
    """

    family: str
    work: str
    op: str
    dtype: str
    entry: str
    record: CallRecord
    rule: tuple[int, ...]
    candidates: tuple[tuple[int, ...], ...]


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured for a work; an entry of a table.

    Attributes:
        choice: the fastest that gave the call's result.
        us: device time of the whole call with it.
        rule_us: the same with the rule's choice; None where that does not run on the device.
        timed: candidates that ran.
        call: the op, the dtype and the shapes of the call.
    """

    choice: tuple[int, ...]
    us: float
    rule_us: float | None
    timed: int
    call: str


def table_file(folder: Path, device: str) -> Path:
    """Where the table of a device lies in a folder of tables; kernels look there by the same rule."""
    return folder / (re.sub("[^a-z0-9]+", "-", device.lower()).strip("-") + ".json")


def own_table(device: str) -> Path:
    """The table that kernels on this machine look at before the shipped one."""
    return table_file(cache_folder() / "tuned", device)


class Table:
    """A table of a device in a file, written anew after every work.

    Args:
        file: where it lies or will lie.
        device: its name.
        environment: versions that the measurements were made with.

    Raises:
        BadInput: the file holds no such table, or another device's.
    """

    def __init__(self, file: Path, device: str, environment: dict[str, str]) -> None:
        self._file = file
        self._head = {"format": FORMAT, "device": device, "environment": environment}
        self._families: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(FileNotFoundError):
            self._families = _read(file, device)

    def has(self, work: TunedWork) -> bool:
        """Whether the work was measured before."""
        return work.work in self._families.get(work.family, {})

    def add(self, work: TunedWork, tuned: Tuned) -> None:
        """Keep what was measured."""
        self._families.setdefault(work.family, {})[work.work] = msgspec.to_builtins(tuned)
        families = {name: dict(sorted(entries.items())) for name, entries in sorted(self._families.items())}
        lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in self._head.items()]
        text = "{\n" + "\n".join(lines) + '\n "families": ' + _by_line(families) + "\n}\n"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_suffix(".part")
        part.write_text(text)
        part.replace(self._file)


def _by_line(families: dict[str, dict[str, Any]]) -> str:
    """An entry a line: a table is read by people, and kept in version control."""
    parts = []
    for name, entries in families.items():
        lines = ",\n".join(f"   {json.dumps(work)}: {json.dumps(entry)}" for work, entry in entries.items())
        parts.append(f"  {json.dumps(name)}: {{\n{lines}\n  }}")
    return "{\n" + ",\n".join(parts) + "\n }"


def _read(file: Path, device: str) -> dict[str, dict[str, Any]]:
    try:
        found = json.loads(file.read_text())
        its_device, families = found["device"], found["families"]
    except (ValueError, KeyError, TypeError) as exc:
        raise BadInput(f"{file} is no table of tiles ({type(exc).__name__}); name another file with --out") from exc
    if its_device != device:
        raise BadInput(f"{file} is the table of another device, {its_device}; name another file with --out")
    return families  # type: ignore[no-any-return]
