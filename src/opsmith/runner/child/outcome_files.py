"""Large calls and large outcomes' content go in files, past the judge, who holds no tensor.

A worker reads a call from a file that the judge has copied for it.

A worker writes them into its private folder and names them in its reply. The referee opens nothing
but plain files with such a name in that folder. Where they lie on a device, the worker sends their
summaries first, and the outcomes themselves only if they are asked for: most often eager's have the
same summary.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from opsmith.calls.live import CALL_DECODER
from opsmith.calls.outcomes import HeldOutcome, without_content
from opsmith.calls.transfer import read_content, size_of, write_content
from opsmith.core.case import CallRecord, Outcome, OutputOther, OutputTensor, StoredOutcome, SummarisedOutcome
from opsmith.runner.protocol.worker_messages import LentCall

#: An outcome with up to this much content travels in the message itself.
INLINE_BYTES = 1 << 20
_NAME = re.compile(r"outcome-\d{1,9}")
_DECODER = msgspec.msgpack.Decoder(Outcome | StoredOutcome | SummarisedOutcome)


def read_call(call: bytes | LentCall) -> CallRecord:
    """The worker's side: a call from a request.

    Raises:
        OSError: the file is not there.
        msgspec.DecodeError: it is no call.
    """
    if isinstance(call, bytes):
        record: CallRecord = CALL_DECODER.decode(call)
        return record
    # Nobody but the judge writes to it, so it can be mapped: its content is copied once, by the decoder.
    with Path(call.path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        mapped: CallRecord = CALL_DECODER.decode(content)
        return mapped


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

    def encode(self, held: HeldOutcome) -> msgspec.Raw:
        """An outcome as it goes into a reply."""
        if held.size_bytes <= INLINE_BYTES:
            return msgspec.Raw(msgspec.msgpack.encode(held.outcome()))
        path = self._folder / f"outcome-{len(self._written)}"
        self._written.append(path)
        with path.open("wb") as stream:
            for content in (*held.elements, *held.changed.values()):
                write_content(stream, content)
        sizes = tuple(map(size_of, held.elements))
        changed = {number: size_of(content) for number, content in held.changed.items()}
        return msgspec.Raw(msgspec.msgpack.encode(StoredOutcome(path.name, held.form, sizes, changed)))


def summarised(summary: bytes) -> msgspec.Raw:
    """A summary as it goes into a reply."""
    return msgspec.Raw(msgspec.msgpack.encode(SummarisedOutcome(summary)))


def read_outcome(message: msgspec.Raw, folder: Path, device: torch.device) -> HeldOutcome | SummarisedOutcome:
    """The referee's side: an outcome from a reply, or what stands for it.

    Args:
        message: what the worker sent.
        folder: the worker's private folder.
        device: where content that lies in a file goes.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is no outcome.
        OSError, EOFError: the file that it names is not there, or is no plain file of that size.
    """
    found: Outcome | StoredOutcome | SummarisedOutcome = _DECODER.decode(message)
    if isinstance(found, Outcome):
        return HeldOutcome.of(found)
    return _read(folder, found, device) if isinstance(found, StoredOutcome) else found


def read_outcome_of_ranks(message: msgspec.Raw, folders: Sequence[Path], device: torch.device) -> HeldOutcome:
    """The referee's side: one outcome of those that all ranks sent, rank after rank.

    Their results stand in one tuple. All ranks number the input storages of the whole call, and of a storage that
    several claim to have changed the last one's content counts.

    Args:
        message: a list of what each rank sent, as :class:`~opsmith.runner.processes.rank_group.RankGroup` joins them.
        folders: the ranks' private folders.
        device: where content that lies in a file goes.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: a rank sent no outcome.
        OSError, EOFError: a file that is named is not there, or is no plain file of that size.
    """
    parts: list[HeldOutcome] = []
    for part, folder in zip(msgspec.msgpack.decode(message, type=list[msgspec.Raw]), folders, strict=True):
        outcome = read_outcome(part, folder, device)
        if not isinstance(outcome, HeldOutcome):
            raise msgspec.DecodeError("a rank sends its outcome and no summary of it")
        parts.append(outcome)
    outputs: list[OutputTensor | OutputOther] = []
    for outcome in parts:
        first = len(outputs)
        outputs += [
            msgspec.structs.replace(output, output=output.output + first)
            if isinstance(output, OutputTensor) and output.output is not None
            else output
            for output in outcome.form.outputs
        ]
    structure = f"({','.join(outcome.form.structure for outcome in parts)})"
    return HeldOutcome(
        form=Outcome(structure=structure, outputs=tuple(outputs), changed={}),
        elements=tuple([content for outcome in parts for content in outcome.elements]),
        changed={number: content for outcome in parts for number, content in outcome.changed.items()},
    )


def _read(folder: Path, stored: StoredOutcome, device: torch.device) -> HeldOutcome:
    if not _NAME.fullmatch(stored.name):
        raise OSError(f"{stored.name[:40]!a} is no name of an outcome")
    # A stranger may have put a link or a pipe there.
    descriptor = os.open(folder / stored.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    # Read and never mapped: a stranger may cut the file short meanwhile.
    with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor, not a path
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != stored.size_bytes:
            raise OSError(f"{stored.name} is no plain file of {stored.size_bytes} bytes")
        elements = tuple([read_content(stream, size, device) for size in stored.elements_bytes])
        changed = {number: read_content(stream, size, device) for number, size in stored.changed_bytes.items()}
    return HeldOutcome(form=without_content(stored.form), elements=elements, changed=changed)
