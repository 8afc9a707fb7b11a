"""Conduct: what was seen of how a kernel comes to its results."""

from __future__ import annotations

import msgspec


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
        forbidden: calls that its policy does not allow, on any thread.
        copied_results: the copies that wrote a result and after which nothing changed in it.
        launches: kernels of its DSL that it launched.
    """

    calls: tuple[AtenCall, ...] = ()
    forbidden: tuple[AtenCall, ...] = ()
    copied_results: tuple[AtenCall, ...] = ()
    launches: int = 0
