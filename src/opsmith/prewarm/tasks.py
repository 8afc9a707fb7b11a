"""What is compiled ahead of its first use, and what became of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Warmed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the calls of one op in one dtype.

    Attributes:
        op: the overload.
        dtype: of the calls.
        calls: how many were made.
        declined: how many of them the kernel does not serve.
        compiled: kernels that were compiled.
        cached: kernels that were compiled before.
        seconds: that it took.
        problem: the first error in one line, or None.
    """

    op: str
    dtype: str
    calls: int = 0
    declined: int = 0
    compiled: int = 0
    cached: int = 0
    seconds: float = 0.0
    problem: str | None = None


class Task(NamedTuple):
    """What one process does without a break: an op in one dtype, and the kernel as the manifest has it."""

    op: str
    dtype: str
    entry: str
