"""Traces -> dataset: every distinct input once, with its counts summed and its models merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opsmith.aten.renames import current, misfit
from opsmith.core.trace import TracedCall, TraceEntry
from opsmith.errors import BadInput
from opsmith.traces.exclusions import exclusions
from opsmith.traces.grammar import print_arguments, print_op
from opsmith.traces.measurements import Input, Measurement
from opsmith.traces.schema import MOST_CALLS, Origin, Row, identity, row_name
from opsmith.traces.trace_file import Trace


def build(
    traces: Iterable[Trace], datasets: Iterable[Row] = (), *, measurements: Mapping[str, Measurement] | None = None
) -> list[Row]:
    """Make the rows of the subset ``torchbench``, sorted by op, then the most frequent input first.

    Calls of overloads that torch renamed become calls of today's. Nothing is dropped: what is not
    to be asked is marked, with the reasons.

    Args:
        traces: the traces, in any order.
        datasets: rows of other datasets to merge with them; their times are not taken over.
        measurements: what is known of the inputs, by uuid.

    Raises:
        BadInput: there is no call, or a row does not parse.
    """
    known = measurements or {}
    rows = [_row(distinct, known.get(distinct.uuid)) for distinct in _merge(traces, datasets)]
    if not rows:
        raise BadInput("the traces hold no call; record some with `opsmith trace`")
    return sorted(rows, key=lambda row: (row.op_name, -row.count, row.args))


def measurable(traces: Iterable[Trace], datasets: Iterable[Row] = ()) -> list[Input]:
    """The inputs that can be measured for :func:`build`: those whose call fits the schema of today's op."""
    return [(distinct.uuid, distinct.call) for distinct in _merge(traces, datasets) if misfit(distinct.call) is None]


def most_per_op(rows: Sequence[Row], most: int) -> list[Row]:
    """At most ``most`` inputs of each op, in the order of ``rows``.

    The models choose in turn, each the input that is called most often of its own that is left, so
    that every model keeps a share. Synthetic inputs, which no model made, are left out.
    """
    by_op: dict[str, list[Row]] = {}
    for row in rows:
        by_op.setdefault(row.op_name, []).append(row)
    kept = {row.uuid for of_op in by_op.values() for row in _chosen_in_turn(of_op, most)}
    return [row for row in rows if row.uuid in kept]


def _chosen_in_turn(rows: Sequence[Row], most: int) -> list[Row]:
    by_model: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.count, row.args)):  # What is called most comes last.
        for model in row.in_models:
            by_model.setdefault(model, []).append(row)
    chosen: dict[str, Row] = {}
    while len(chosen) < most and by_model:
        for model in sorted(by_model):
            own = by_model[model]
            while own and own[-1].uuid in chosen:
                own.pop()
            if own and len(chosen) < most:
                chosen[own[-1].uuid] = own[-1]
            if not own:
                del by_model[model]
    return list(chosen.values())


class _DistinctInput:
    """One input while traces are merged: its call, how often it is made and by which models."""

    __slots__ = ("args", "call", "count", "models", "op_name", "uuid")

    def __init__(self, call: TracedCall, op_name: str, args: str) -> None:
        self.call = call
        self.op_name, self.args = op_name, args
        self.uuid = identity(op_name, args)
        self.count = 0
        self.models: set[str] = set()


def _merge(traces: Iterable[Trace], datasets: Iterable[Row]) -> list[_DistinctInput]:
    """The distinct inputs of traces and rows, under today's names, in order of appearance."""
    found: dict[tuple[str, str], _DistinctInput] = {}

    def add(old: TracedCall, count: int, models: Iterable[str]) -> None:
        call = current(old)
        key = print_op(call.op), print_arguments(call)
        distinct = found.get(key)
        if distinct is None:
            distinct = found[key] = _DistinctInput(call, *key)
        if count:
            distinct.count += count
            if distinct.count > MOST_CALLS:
                raise BadInput(f"{distinct.op_name} {distinct.args} is called more than {MOST_CALLS} times in all")
            distinct.models.update(models)

    for trace in traces:
        for entry in trace.entries:
            add(entry.call, entry.count, (trace.model,))
    for row in datasets:
        add(row.call(source=f"row {row.uuid}"), row.count, row.in_models)
    return list(found.values())


def _row(distinct: _DistinctInput, measurement: Measurement | None) -> Row:
    is_synthetic = distinct.count == 0
    reasons = exclusions(distinct.call, is_synthetic=is_synthetic)
    problem = misfit(distinct.call)
    if problem is None and measurement is not None and measurement.problem is not None:
        problem = f"does not run on {measurement.device}: {measurement.problem}"
    if problem is not None:
        reasons.append(problem)
    return Row(
        uuid=distinct.uuid,
        op_name=distinct.op_name,
        args=distinct.args,
        runnable=problem is None,
        included_in_benchmark=not reasons,
        why_excluded=tuple(reasons),
        is_synthetic=is_synthetic,
        runtime_ms=measurement.runtime_ms if measurement else None,
        relative_runtime_to_kernel_launch=measurement.relative_runtime if measurement else None,
        is_overhead_dominated_op=measurement.is_overhead_dominated if measurement else None,
        count=distinct.count,
        in_models=tuple(sorted(distinct.models)),
        in_models_count=len(distinct.models),
    )


def origins(traces: Iterable[Trace]) -> list[Origin]:
    """Make the rows of the subset ``ops_traces_models``: one for each input of each model.

    Overloads keep the names that the traces have. Synthetic inputs have no model and are left out.

    Raises:
        BadInput: the traces hold no call of a model.
    """
    found = {
        (print_op(entry.call.op), trace.model, print_arguments(entry.call))
        for trace in traces
        for entry in trace.entries
        if entry.count
    }
    if not found:
        raise BadInput("the traces hold no call of a model; record some with `opsmith trace`")
    return [Origin(op_name=op_name, model=model, args=args) for op_name, model, args in sorted(found)]


def unbuild(rows: Sequence[Row], *, source: str) -> list[TraceEntry]:
    """The trace that the rows amount to: calls and counts, without models, exclusions and times.

    Raises:
        BadInput: a row does not parse; names ``source``, row and place.
    """
    return [
        TraceEntry(call=row.call(source=row_name(source, number)), count=row.count)
        for number, row in enumerate(rows, start=1)
    ]
