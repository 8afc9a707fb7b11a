"""Conduct: what was seen of how a kernel comes to its results."""

from __future__ import annotations

import enum

import msgspec


class Offence(enum.StrEnum):
    """What a line that is held against a kernel is about."""

    #: It had ATen compute, in the open: its policy does not allow that.
    COMPOSITION = "composition"
    #: The same out of sight of what watches.
    CONCEALMENT = "concealment"
    #: Anything else: it replaced, searched or fetched what is none of its business.
    TAMPERING = "tampering"


class Held(msgspec.Struct, frozen=True):
    """A line that is held against a kernel."""

    line: str
    offence: Offence


class AtenCall(msgspec.Struct, frozen=True):
    """One call of an ATen overload, of one outside ATen, or of a vendor's function.

    Attributes:
        op: ``packet.overload``, with its namespace before it outside ATen; a function of C has no dot in its name.
        place: ``file:line`` of the kernel's code that made it, or the shared object.
    """

    op: str
    place: str

    def __str__(self) -> str:
        if "." not in self.op:
            return f"{self.op} at {self.place}"
        namespace, _, packet = self.op.rpartition(".")[0].rpartition(".")
        return f"{namespace or 'aten'}::{packet}.{self.op.rpartition('.')[2]} at {self.place}"


class CallConduct(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was seen while a kernel answered one call.

    Attributes:
        calls: the ATen calls that compute which it made on the calling thread, in order; at most the
            first 200.
        forbidden: calls that its policy does not allow, made in the open.
        hidden: those that the dispatch mode around the call did not see.
        copied_results: the copies that wrote a result and after which nothing changed in it.
        launches: kernels of its DSL that it launched.
    """

    calls: tuple[AtenCall, ...] = ()
    forbidden: tuple[AtenCall, ...] = ()
    hidden: tuple[AtenCall, ...] = ()
    copied_results: tuple[AtenCall, ...] = ()
    launches: int = 0
