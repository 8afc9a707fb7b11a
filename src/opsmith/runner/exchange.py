"""Large outcomes go from a worker to the referee as files, past the judge, who holds no tensor.

A worker writes them into its private folder and names them in its reply. The referee opens nothing
but plain files with such a name in that folder. Where they lie on a device, the worker sends their
summaries first, and the outcomes themselves only if they are asked for: most often eager's have the
same summary.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import msgspec

from opsmith.core.case import Outcome, StoredOutcome, SummarisedOutcome

#: An encoded outcome up to this size travels in the message itself.
INLINE_BYTES = 1 << 20
_NAME = re.compile(r"outcome-\d{1,9}")
_DECODER = msgspec.msgpack.Decoder(Outcome | StoredOutcome | SummarisedOutcome)
_STAND_IN_DECODER = msgspec.msgpack.Decoder(StoredOutcome | SummarisedOutcome)
_OUTCOME_DECODER = msgspec.msgpack.Decoder(Outcome)


class OutcomeWriter:
    """The worker's side.

    Args:
        folder: the worker's private folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._written: list[Path] = []

    def forget(self) -> None:
        """Remove the files of the last reply."""
        for path in self._written:
            path.unlink(missing_ok=True)
        self._written.clear()

    def encode(self, outcome: Outcome) -> msgspec.Raw:
        """An outcome as it goes into a reply."""
        data = msgspec.msgpack.encode(outcome)
        if len(data) <= INLINE_BYTES:
            return msgspec.Raw(data)
        path = self._folder / f"outcome-{len(self._written)}"
        path.write_bytes(data)
        self._written.append(path)
        return msgspec.Raw(msgspec.msgpack.encode(StoredOutcome(path.name, len(data))))


def summarised(summary: bytes) -> msgspec.Raw:
    """A summary as it goes into a reply."""
    return msgspec.Raw(msgspec.msgpack.encode(SummarisedOutcome(summary)))


def is_whole(message: msgspec.Raw) -> bool:
    """Whether a message is, as far as it goes, the outcome itself and nothing that stands for it."""
    try:
        _STAND_IN_DECODER.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return False


def read_outcome(message: msgspec.Raw, folder: Path) -> Outcome | SummarisedOutcome:
    """The referee's side: an outcome from a reply, or what stands for it.

    Args:
        message: what the worker sent.
        folder: the worker's private folder.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is no outcome.
        OSError: the file that it names is not there, or is no plain file of that size.
    """
    found: Outcome | StoredOutcome | SummarisedOutcome = _DECODER.decode(message)
    if not isinstance(found, StoredOutcome):
        return found
    outcome: Outcome = _OUTCOME_DECODER.decode(_read(folder, found))
    return outcome


def _read(folder: Path, stored: StoredOutcome) -> bytes:
    if not _NAME.fullmatch(stored.name):
        raise OSError(f"{stored.name[:40]!a} is no name of an outcome")
    # A stranger may have put a link or a pipe there.
    descriptor = os.open(folder / stored.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor, not a path
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != stored.size_bytes:
            raise OSError(f"{stored.name} is no plain file of {stored.size_bytes} bytes")
        return stream.read(stored.size_bytes)
