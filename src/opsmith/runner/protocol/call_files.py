"""Serialized calls on disk: written by referees, or sent by another machine, and read back by the judge."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.storage import naming

#: Spool files with these numbers and above hold what was sent; those below are the referees'.
FIRST_SENT = 1 << 20


class Spool:
    """Reads serialized calls back from the spool files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptors: dict[int, int] = {}
        self._numbers = itertools.count(FIRST_SENT)

    def read(self, case: CaseRef) -> bytes:
        data = os.pread(self._descriptor(case.spool), case.length, case.offset)
        assert len(data) == case.length, "a spool file is shorter than its index says"
        return data

    def read_again(self, case: CaseRef) -> bytes | None:
        """The same call with other values, or None where there are none."""
        again = with_other_values(case)
        return None if again is None else self.read(again)

    def copy(self, case: CaseRef, path: Path) -> None:
        """Copy a call to a new file, past this process's memory."""
        offset, end = case.offset, case.offset + case.length
        with naming(path), path.open("xb") as file:
            while offset < end:
                copied = os.sendfile(file.fileno(), self._descriptor(case.spool), offset, end - offset)
                assert copied, "a spool file is shorter than its index says"
                offset += copied

    def _descriptor(self, number: int) -> int:
        descriptor = self._descriptors.get(number)
        if descriptor is None:
            descriptor = self._descriptors[number] = os.open(self._path(number), os.O_RDONLY)
        return descriptor

    def add(self, calls: bytes) -> int:
        """Write calls that were sent; the number of their spool file."""
        number = next(self._numbers)
        path = self._path(number)
        with naming(path):
            path.write_bytes(calls)
        return number

    def remove(self, number: int) -> None:
        """Delete a file that was added."""
        descriptor = self._descriptors.pop(number, None)
        if descriptor is not None:
            os.close(descriptor)
        self._path(number).unlink()

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number}.spool"


def with_other_values(case: CaseRef) -> CaseRef | None:
    """Where the same call with other values lies, or None where there is none."""
    if case.again is None:
        return None
    offset, length = case.again
    return msgspec.structs.replace(case, offset=offset, length=length)


class SentCalls:
    """The judge's copy of what lanes on other machines have recorded: one file, to which all of them add."""

    def __init__(self, folder: Path) -> None:
        self._spool = Spool(folder)
        self._number = self._spool.add(b"")
        self._path = folder / f"{self._number}.spool"
        self._stream = self._path.open("ab")
        self._lock = threading.Lock()

    def add(self, cases: Iterable[CaseRef], calls: bytes) -> tuple[CaseRef, ...]:
        """Keep the calls of cases that were :func:`packed`; the cases as they are found from now on."""
        with self._lock:
            start = self._stream.tell()
            with naming(self._path):
                self._stream.write(calls)
                self._stream.flush()
        return tuple([placed(case, self._number, start) for case in cases])

    def packed(self, cases: Iterable[CaseRef]) -> tuple[dict[CaseRef, CaseRef], bytes]:
        """As :func:`packed`."""
        return packed(cases, self._spool)

    def close(self) -> None:
        self._stream.close()
        self._spool.close()


def packed(cases: Iterable[CaseRef], spool: Spool) -> tuple[dict[CaseRef, CaseRef], bytes]:
    """Put the calls of some cases one after another, to be sent.

    Returns:
        each case -> the same with its place in the bytes, and the bytes.
    """
    parts: list[bytes] = []
    size = 0
    found: dict[CaseRef, CaseRef] = {}
    for case in cases:
        if case in found:
            continue
        call, again = spool.read(case), spool.read_again(case)
        parts.append(call)
        found[case] = msgspec.structs.replace(case, spool=0, offset=size, again=None)
        size += len(call)
        if again is not None:
            parts.append(again)
            found[case] = msgspec.structs.replace(found[case], again=(size, len(again)))
            size += len(again)
    return found, b"".join(parts)


def placed(case: CaseRef, number: int, start: int) -> CaseRef:
    """A packed case, after its bytes were written at ``start`` into spool file ``number``."""
    again = None if case.again is None else (case.again[0] + start, case.again[1])
    return msgspec.structs.replace(case, spool=number, offset=case.offset + start, again=again)


def with_places(cases: Iterable[CaseRef], places: Mapping[CaseRef, CaseRef]) -> tuple[CaseRef, ...]:
    """The cases, each as ``places`` has it."""
    return tuple([places[case] for case in cases])
