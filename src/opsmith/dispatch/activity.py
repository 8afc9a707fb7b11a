"""What the installed kernels do: which op is served by which kernel, how often, and what fell back why."""

from __future__ import annotations

import msgspec

from opsmith.dispatch.guards import Fallback
from opsmith.dispatch.plans.plan import Refusal


class ServedOp(msgspec.Struct, frozen=True, kw_only=True):
    """One overload on one device type.

    Attributes:
        op: the overload.
        device: the device type.
        backend: who offers the kernel: a backend, a directory or a package, by name.
        kernel: where the kernel comes from: its file or module, and its name there.
        dsl: the kernel's language.
        derived_from: the functional overload whose kernel answers with a copy at the end, or None.
        calls: how many calls the kernel answered.
        planned: how many of them were answered by a launch plan, without the kernel's host code.
        refused: how many signatures have no plan though the kernel allows plans, by reason.
        fallbacks: how many it did not answer, by reason.
    """

    op: str
    device: str
    backend: str
    kernel: str
    dsl: str
    derived_from: str | None
    calls: int
    planned: int
    refused: dict[Refusal, int]
    fallbacks: dict[Fallback, int]


class Active(msgspec.Struct, frozen=True, kw_only=True):
    """What is installed at one moment; printing it shows a table.

    Attributes:
        kernels: what :func:`opsmith.enable` was told, or None while nothing is enabled.
        registered: overrides that stand in torch's tables, those that are switched off included.
        ops: what is served, by op and device.
        excluded: ops that there is a kernel for and that are left to PyTorch, with the reason.
    """

    kernels: str | None
    registered: int
    ops: tuple[ServedOp, ...]
    excluded: dict[str, str]

    @property
    def calls(self) -> int:
        """How many calls kernels answered."""
        return sum(op.calls for op in self.ops)

    def to_json(self) -> str:
        """The record as one JSON document."""
        return msgspec.json.encode(self).decode()

    def __str__(self) -> str:
        if self.kernels is None:
            rest = f"; {self.registered} overrides are switched off" if self.registered else ""
            return f"no kernels are enabled{rest}"
        rows = [("op", "device", "backend", "kernel", "calls", "planned", "fallbacks"), *map(_row, self.ops)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        answered = sum(op.calls > 0 for op in self.ops)
        title = f"{self.kernels}: {len(self.ops)} ops served, {answered} of them called, {self.calls} calls"
        left = [f"left to PyTorch: {op} ({reason})" for op, reason in self.excluded.items()]
        return "\n".join([title, *lines, *left])


def _row(op: ServedOp) -> tuple[str, ...]:
    kernel = f"{op.kernel} + copy" if op.derived_from else op.kernel
    fallbacks = ", ".join(f"{reason} {count}" for reason, count in op.fallbacks.items())
    return op.op, op.device, op.backend, kernel, str(op.calls), str(op.planned), fallbacks
