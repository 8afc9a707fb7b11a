"""What is wrong with a dataset: every row parses, its fields agree, and torch has its ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec

from opsmith.aten.renames import misfit
from opsmith.core.trace import TracedCall
from opsmith.errors import BadInput
from opsmith.traces.measurements import OVERHEAD_RATIO
from opsmith.traces.schema import Row, decode_row, identity, row_name


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.

    Attributes:
        row: number of the row, from 1.
        field: the field that is wrong, or None where the row as a whole is.
        problem: what is wrong with it.
    """

    row: int
    field: str | None
    problem: str


def validate(rows: Sequence[object], *, advance: Callable[[int], None]) -> list[Finding]:
    """Check every row of a dataset.

    Args:
        rows: as :func:`opsmith.traces.schema.read_raw_rows` yields them.
        advance: told how many rows are done, after each.
    """
    findings: list[Finding] = []
    first_row: dict[str, int] = {}
    for number, raw in enumerate(rows, start=1):
        source = row_name("", number)
        try:
            row = decode_row(raw, source=source)
            problems = [*_disagreements(row), *_unusable(row, row.call(source=source))]
            if first_row.setdefault(row.uuid, number) != number:
                problems.append(("uuid", f"is that of row {first_row[row.uuid]}"))
        except BadInput as exc:
            field, _, problem = str(exc).removeprefix(source).strip().partition(":")
            problems = [(field, problem.strip())]
        findings += [Finding(row=number, field=field or None, problem=problem) for field, problem in problems]
        advance(number)
    return findings


def _disagreements(row: Row) -> Iterator[tuple[str, str]]:
    """What the fields of a row say against each other."""
    if row.uuid != identity(row.op_name, row.args):
        yield "uuid", "is not the SHA-256 of args and op_name"
    if row.included_in_benchmark and row.why_excluded:
        yield "why_excluded", "has reasons, but the row is included"
    if not row.included_in_benchmark and not row.why_excluded:
        yield "why_excluded", "has no reason, but the row is excluded"
    if row.included_in_benchmark and not row.runnable:
        yield "included_in_benchmark", "is true, but the row is not runnable"
    if row.is_synthetic != (row.count == 0):
        yield "is_synthetic", f"is {str(row.is_synthetic).lower()}, but count is {row.count}"
    if row.in_models_count != len(row.in_models):
        yield "in_models_count", f"is {row.in_models_count}, but in_models has {len(row.in_models)}"
    if len(set(row.in_models)) != len(row.in_models):
        yield "in_models", "names a model twice"
    yield from _timing_disagreements(row)


def _timing_disagreements(row: Row) -> Iterator[tuple[str, str]]:
    ratio = row.relative_runtime_to_kernel_launch
    for field, value in (("runtime_ms", row.runtime_ms), ("relative_runtime_to_kernel_launch", ratio)):
        if value is not None and not (math.isfinite(value) and value > 0):
            yield field, f"is {value}"
    if (row.runtime_ms is None) != (ratio is None):
        yield "relative_runtime_to_kernel_launch", "is not there together with runtime_ms"
    if ratio is not None and row.is_overhead_dominated_op != (ratio < OVERHEAD_RATIO):
        yield "is_overhead_dominated_op", f"does not agree with a relative runtime of {ratio:.3g}"


def _unusable(row: Row, call: TracedCall) -> Iterator[tuple[str, str]]:
    """What keeps torch from making the call, unless the row says itself that it is not runnable."""
    problem = misfit(call)
    if row.runnable and problem is not None:
        yield "op_name", problem
