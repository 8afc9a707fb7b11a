"""What can be looked at of a kernel besides its verdicts: a profile of one call, where time goes, where it is wrong."""

from __future__ import annotations

import msgspec


class Span(msgspec.Struct, frozen=True, array_like=True):
    """What ran for a while.

    Attributes:
        name: of a kernel on the device, or of an op on the CPU.
        start_us: since the call began, microseconds.
        duration_us: likewise.
    """

    name: str
    start_us: float
    duration_us: float


class CallProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What ran during one call, by torch's profiler.

    Attributes:
        inputs: of the call, in one line.
        device: whose time the spans are.
        spans: in the order in which they began, none inside another one.
        left_out: further ones that are not kept.
    """

    inputs: str = ""
    device: str
    spans: tuple[Span, ...]
    left_out: int = 0

    @property
    def whole_us(self) -> float:
        """From the beginning of the first span to the end of the last one."""
        if not self.spans:
            return 0.0
        return max(span.start_us + span.duration_us for span in self.spans) - self.spans[0].start_us

    @property
    def busy_us(self) -> float:
        """Of that, with at least one span."""
        busy, until = 0.0, float("-inf")
        for span in self.spans:
            end = span.start_us + span.duration_us
            busy += max(0.0, end - max(span.start_us, until))
            until = max(until, end)
        return busy


class CompiledKernel(msgspec.Struct, frozen=True, kw_only=True):
    """What Triton's compiler says of a kernel that it compiled.

    Attributes:
        name: of the function.
        registers: of a thread.
        spills: bytes of a thread that do not fit in registers.
        shared_bytes: of a program.
        warps: of a program.
    """

    name: str
    registers: int
    spills: int
    shared_bytes: int
    warps: int


class LineTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long the lines of a kernel's file took in one call, the device waited for after each.

    Attributes:
        file: its name.
        us: line, counted from 1 -> microseconds.
    """

    file: str
    us: dict[int, float]


class ErrorMap(msgspec.Struct, frozen=True, kw_only=True):
    """Where a result is off, over its index space.

    The result is seen as a matrix: rows are all dimensions but the last one, columns are the last one. Neighbours are
    put together, in steps that are powers of two as the tiles of kernels are, so that there are few cells.

    Attributes:
        inputs: of the call, in one line.
        result: which of the results.
        shape: of it.
        rows: cells one below another.
        columns: cells beside each other.
        row_step: rows of the matrix in a cell.
        column_step: columns of it.
        wrong: cell, row by row -> share of its elements that are off.
        worst: the largest error, as a multiple of what is allowed; None for one without bound: NaN, an infinity.
    """

    inputs: str = ""
    result: int
    shape: tuple[int, ...]
    rows: int
    columns: int
    row_step: int
    column_step: int
    wrong: tuple[float, ...]
    worst: float | None


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was found by looking at a kernel; each part None where there was nothing to find.

    Attributes:
        profile: of its largest call.
        compiled: by Triton.
        lines: of the same call.
        errors: of its smallest wrong call.
        problem: why something could not be looked at, in one line.
    """

    profile: CallProfile | None = None
    compiled: tuple[CompiledKernel, ...] = ()
    lines: LineTimes | None = None
    errors: ErrorMap | None = None
    problem: str = ""

    def with_inputs(self, inputs: str) -> Evidence:
        """The same, of a call with these arguments."""
        profile, errors = self.profile, self.errors
        return msgspec.structs.replace(
            self,
            profile=None if profile is None else msgspec.structs.replace(profile, inputs=inputs),
            errors=None if errors is None else msgspec.structs.replace(errors, inputs=inputs),
        )
