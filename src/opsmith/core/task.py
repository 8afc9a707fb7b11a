"""Tasks: the things that a kernel is asked to implement."""

from __future__ import annotations

import msgspec

from opsmith.core.op import OpSchema, TaskKind


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to implement.

    Attributes:
        name: the key in every record; for an op its overload name, for a module ``L1/23_Softmax``.
        op: the op's schema, or what stands for it where the task is a module.
        suite: the suite that asks for it.
    """

    name: str
    op: OpSchema
    suite: str

    @property
    def kind(self) -> TaskKind:
        """An op, a module or a collective."""
        return self.op.kind
