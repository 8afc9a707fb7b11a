"""What the installed kernels do: which op is served by which kernel, how often, and what fell back why."""

from __future__ import annotations

import statistics

import msgspec

from opsmith.dispatch.guards import Fallback
from opsmith.dispatch.plans.plan import Refusal


class ServedClass(msgspec.Struct, frozen=True, kw_only=True):
    """A class of calls of one overload, and who answers them.

    Attributes:
        text: dtypes, layouts, sizes and other arguments; sizes above 8 are rounded up to a power of two.
        served: whether the kernel does.
        eager_us: microseconds of a call by PyTorch's own kernel; None where it could not be timed.
        kernel_us: likewise by the kernel.
        note: why the kernel was not timed.
    """

    text: str
    served: bool
    eager_us: float | None
    kernel_us: float | None
    note: str


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
        left: how many calls were left to PyTorch, because its own kernel is faster for their class or nobody knows yet.
        classes: what was decided for classes of calls; empty where the kernel answers all.
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
    left: int
    classes: tuple[ServedClass, ...]
    refused: dict[Refusal, int]
    fallbacks: dict[Fallback, int]

    @property
    def speedup(self) -> float | None:
        """Eager's time by the kernel's, geometric mean of the classes that the kernel answers; None without any."""
        pairs = [(one.eager_us, one.kernel_us) for one in self.classes if one.served]
        ratios = [eager / kernel for eager, kernel in pairs if eager and kernel]
        return statistics.geometric_mean(ratios) if ratios else None


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
        titles = ("op", "device", "backend", "kernel", "calls", "planned", "left", "faster", "fallbacks")
        rows = [titles, *map(_row, self.ops)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        answered = sum(op.calls > 0 for op in self.ops)
        title = f"{self.kernels}: {len(self.ops)} ops served, {answered} of them called, {self.calls} calls"
        left = [f"left to PyTorch: {op} ({reason})" for op, reason in self.excluded.items()]
        return "\n".join([title, *lines, *left])


def _row(op: ServedOp) -> tuple[str, ...]:
    kernel = f"{op.kernel} + copy" if op.derived_from else op.kernel
    fallbacks = ", ".join(f"{reason} {count}" for reason, count in op.fallbacks.items())
    return op.op, op.device, op.backend, kernel, str(op.calls), str(op.planned), str(op.left), _gain(op), fallbacks


def _gain(op: ServedOp) -> str:
    """In how many classes the kernel answers, and how much faster it is there."""
    if not op.classes:
        return ""
    served = f"{sum(one.served for one in op.classes)} of {len(op.classes)} classes"
    return served if op.speedup is None else f"{served}, {op.speedup:.2f}x"
