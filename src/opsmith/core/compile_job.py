"""What a process that compiles kernels ahead is told, and how: messages with their length before them."""

from __future__ import annotations

from typing import IO

import msgspec

from opsmith.core.case import CallRecord

_LENGTH_BYTES = 4


class GPU(msgspec.Struct, frozen=True, kw_only=True):
    """What is compiled for.

    Attributes:
        architecture: the compute capability times ten, 90 for Hopper.
        multiprocessors: how many it has.
        name: as torch says it.
    """

    architecture: int
    multiprocessors: int
    name: str


class CompileJob(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose kernels are wanted.

    Attributes:
        entry: the shipped kernel, as the manifest has it: ``file.py:function``.
        call: its arguments; what lies in their memory is not told.
    """

    entry: str
    call: CallRecord


def send(stream: IO[bytes], message: object) -> None:
    """Write a message and its length.

    Raises:
        OSError: the other end is gone.
    """
    data = msgspec.msgpack.encode(message)
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Read a message, still encoded; None where the other end is gone."""
    length = stream.read(_LENGTH_BYTES)
    if len(length) < _LENGTH_BYTES:
        return None
    size = int.from_bytes(length, "little")
    data = stream.read(size)
    return data if len(data) == size else None
