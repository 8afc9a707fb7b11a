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
from collections.abc import Sequence
from pathlib import Path

import msgspec

from opsmith.core.case import Outcome, OutputOther, OutputTensor, StoredOutcome, SummarisedOutcome

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
        summarises: what is large on a device is told by its summary first; of a rank it is part of an outcome, which
            has none.
    """

    def __init__(self, folder: Path, *, summarises: bool = True) -> None:
        self.summarises = summarises
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


def read_outcome_of_ranks(message: msgspec.Raw, folders: Sequence[Path]) -> Outcome:
    """The referee's side: one outcome of those that all ranks sent, rank after rank.

    Their results stand in one tuple. All ranks number the input storages of the whole call, and of a storage that
    several claim to have changed the last one's content counts.

    Args:
        message: a list of what each rank sent, as :class:`~opsmith.runner.rank_group.RankGroup` joins them.
        folders: the ranks' private folders.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: a rank sent no outcome.
        OSError: a file that is named is not there, or is no plain file of that size.
    """
    parts: list[Outcome] = []
    for part, folder in zip(msgspec.msgpack.decode(message, type=list[msgspec.Raw]), folders, strict=True):
        outcome = read_outcome(part, folder)
        if not isinstance(outcome, Outcome):
            raise msgspec.DecodeError("a rank sends its outcome and no summary of it")
        parts.append(outcome)
    outputs: list[OutputTensor | OutputOther] = []
    for outcome in parts:
        first = len(outputs)
        outputs += [
            msgspec.structs.replace(output, output=output.output + first)
            if isinstance(output, OutputTensor) and output.output is not None
            else output
            for output in outcome.outputs
        ]
    return Outcome(
        structure=f"({','.join(outcome.structure for outcome in parts)})",
        outputs=tuple(outputs),
        changed={number: content for outcome in parts for number, content in outcome.changed.items()},
    )


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
