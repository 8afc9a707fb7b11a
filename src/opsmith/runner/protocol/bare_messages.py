"""What the judge and a bare program write for each other: JSON in files, for the program has only Python's library.

What a program writes is data of a stranger's: it is decoded into these types and nothing else.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.case import (
    CallRecord,
    ComplexValue,
    MappingValue,
    NamedValue,
    OutputTensor,
    SequenceValue,
    StoredOutcome,
    TensorValue,
    Value,
    storage_size,
    tensor_values,
)
from opsmith.core.dtypes import TENSOR_DTYPES
from opsmith.errors import ProtocolError

_SHORT_NAMES = {long: short for short, long in TENSOR_DTYPES.items()}
#: Answers name the files in which results lie, so they are short.
MAX_ANSWER_BYTES = 8 << 20


class PlainCall(msgspec.Struct, frozen=True):
    """A call as a bare program is told it.

    Attributes:
        described: JSON of its argument tree.
        values: file with the content of its storages, one after another.
    """

    described: bytes
    values: str


class BareRaised(msgspec.Struct, frozen=True):
    """The kernel raised."""

    message: str


#: Of a kernel that does not load what it raised; else of each call its outcomes, or what was raised.
BareAnswer = BareRaised | list[BareRaised | list[StoredOutcome]]


def described(record: CallRecord) -> dict[str, Any]:
    """A call without the content of its storages, in lists, dicts, numbers and strings."""
    tensors = tensor_values((*record.args, *record.kwargs.values()))
    return {
        "args": [_plain(value) for value in record.args],
        "kwargs": {name: _plain(value) for name, value in record.kwargs.items()},
        "sizes": [storage_size(storage) for storage in record.storages],
        "on_host": sorted({tensor.storage for tensor in tensors if tensor.device == "cpu"}),
    }


def _plain(value: Value) -> Any:
    match value:
        case TensorValue():
            fields = (value.storage, TENSOR_DTYPES[value.dtype], value.shape, value.strides, value.offset)
            return ["tensor", *fields, value.is_conj, value.is_neg]
        case SequenceValue(items, is_tuple):
            return ["sequence", [_plain(item) for item in items], is_tuple]
        case MappingValue(items):
            return ["mapping", {name: _plain(item) for name, item in items.items()}]
        case ComplexValue(real, imag):
            return ["complex", real, imag]
        case NamedValue(kind, name):
            return ["named", kind, name]
        case _:
            return value


def write_request(path: Path, request: Mapping[str, Any]) -> None:
    """Write what a process of a bare program is to do."""
    path.write_text(json.dumps(request), encoding="utf-8")


def read_answer(path: Path) -> BareRaised | list[BareRaised | list[StoredOutcome]]:
    """What a process of a bare program has answered.

    Raises:
        OSError: there is no such plain file.
        ProtocolError: it is no answer.
    """
    # A stranger may have put a link or a pipe there.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor, not a path
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_ANSWER_BYTES:
            raise ProtocolError("the answer is no plain file, or too long")
        text = stream.read(MAX_ANSWER_BYTES)
    try:
        # Python's own: infinities and NaN are told as such.
        found = json.loads(text)
        if isinstance(found, dict):
            return msgspec.convert(found, BareRaised)
        return [
            msgspec.convert(one, BareRaised) if isinstance(one, dict) else [_outcome(outcome) for outcome in one]
            for one in msgspec.convert(found, list[Any])
        ]
    except (ValueError, TypeError, RecursionError) as exc:
        raise ProtocolError(f"the answer does not decode: {exc}") from exc


def _outcome(told: Any) -> StoredOutcome:
    stored = msgspec.convert(told, StoredOutcome, str_keys=True)
    outputs = [
        msgspec.structs.replace(output, dtype=_SHORT_NAMES.get(output.dtype, output.dtype))
        if isinstance(output, OutputTensor)
        else output
        for output in stored.form.outputs
    ]
    return msgspec.structs.replace(stored, form=msgspec.structs.replace(stored.form, outputs=tuple(outputs)))
