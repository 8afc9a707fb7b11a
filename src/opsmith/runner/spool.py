"""Serialized calls, as the judge reads them back from the referees' files."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from opsmith.core.case import CaseRef


class Spool:
    """Reads serialized calls back from the referees' spool files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptors: dict[int, int] = {}

    def read(self, case: CaseRef) -> bytes:
        descriptor = self._descriptors.get(case.spool)
        if descriptor is None:
            descriptor = self._descriptors[case.spool] = os.open(self.folder / f"{case.spool}.spool", os.O_RDONLY)
        data = os.pread(descriptor, case.length, case.offset)
        assert len(data) == case.length, "a spool file is shorter than its index says"
        return data

    def read_again(self, case: CaseRef) -> bytes | None:
        """The same call with other values, or None where there are none."""
        if case.again is None:
            return None
        offset, length = case.again
        return self.read(msgspec.structs.replace(case, offset=offset, length=length))

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
