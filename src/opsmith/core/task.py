"""Tasks: the things that a kernel is asked to implement."""

from __future__ import annotations

import msgspec

from opsmith.core.op import OpSchema


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to implement.

    Attributes:
        name: the key in every record; for an op its overload name.
        op: the op's schema.
        suite: the suite that asks for it.
    """

    name: str
    op: OpSchema
    suite: str
