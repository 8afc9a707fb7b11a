"""A run of whole models as tables of text, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opsmith.core.run import ColumnResult, ColumnSummary
from opsmith.core.timing import Label, Timing
from opsmith.core.verdict import Status
from opsmith.report.column_scores import timings, undecided
from opsmith.report.level_tables import LevelTable
from opsmith.report.strangers import one_line

#: Characters of a reason in a table.
_REASON_CHARACTERS = 160
_DASH = "-"


def column_tables(summaries: Mapping[str, ColumnSummary], results: Sequence[ColumnResult]) -> list[LevelTable]:
    """Columns side by side: their scores, then each model's speedups; none for a run of ops."""
    if not summaries:
        return []
    quantities = [quantity for quantity in ("K", "E") if timings(results, quantity) or undecided(results, quantity)]
    return [_scores(summaries), *(_speedups(summaries, results, quantity) for quantity in quantities)]


def case_table(results: Sequence[ColumnResult]) -> LevelTable:
    """One row a model and column, with every figure and with the reason where there is none."""
    rows = tuple(_case_row(result) for result in results)
    titles = ("model", "dtype", "column", "result", "eager ms", "ms", "E", "99 % interval", "", "K")
    return LevelTable("Models", (*titles, "peak MiB", "first call s", "graphs", "reason"), rows)


def _scores(summaries: Mapping[str, ColumnSummary]) -> LevelTable:
    rows = tuple(
        (
            one_line(column),
            f"{scores.passed}/{scores.cases}",
            _ratio(scores.speedup_e),
            _labels(scores.labels_e),
            _ratio(scores.speedup_k),
            _ratio(scores.memory),
            _number(scores.first_call_s, ".1f"),
            _DASH if scores.graphs is None else f"{scores.graphs:,}",
        )
        for column, scores in summaries.items()
    )
    titles = ("column", "passed", "E", "of E", "K", "memory", "first calls s", "graphs")
    return LevelTable("Columns against eager", titles, rows)


def _speedups(summaries: Mapping[str, ColumnSummary], results: Sequence[ColumnResult], quantity: str) -> LevelTable:
    """One row a model; a speedup, or the status of what was not right or not timed."""
    cells = {(_name(result), result.column): result for result in results}
    rows = tuple(
        (name, *(_speedup(cells.get((name, column)), quantity) for column in summaries))
        for name in dict.fromkeys(name for name, _ in cells)
    )
    return LevelTable(f"{quantity} over eager's", ("model", *map(one_line, summaries)), rows)


def _speedup(result: ColumnResult | None, quantity: str) -> str:
    if result is None:
        return _DASH
    found = timings([result], quantity)
    if result.verdict.status is not Status.PASSED:
        return result.verdict.status
    if undecided([result], quantity):
        return Label.UNDECIDED.lower()
    return f"{found[0].speedup:.2f}x" if found else _DASH


def _name(result: ColumnResult) -> str:
    return f"{one_line(result.verdict.op)} {result.verdict.dtype}"


def _case_row(result: ColumnResult) -> tuple[str, ...]:
    verdict, timed = result.verdict, result.timed
    whole = next(iter(timings([result], "E")), None)
    kernels = next(iter(timings([result], "K")), None)
    reasons = [verdict.detail]
    if timed is not None:
        reasons += [f"{one.quantity} {one.reason}" for one in timed.undecided] + [timed.problem or ""]
    reason = "; ".join(filter(None, reasons))
    return (
        one_line(verdict.op),
        verdict.dtype,
        one_line(result.column),
        verdict.status,
        *_times(whole),
        _DASH if kernels is None else f"{kernels.speedup:.2f}x",
        _DASH if result.peak_bytes is None else f"{result.peak_bytes / 2**20:,.0f}",
        _number(None if timed is None else timed.first_call_s, ".2f"),
        _DASH if result.graphs is None else f"{result.graphs:,}",
        one_line(reason)[:_REASON_CHARACTERS],
    )


def _times(timing: Timing | None) -> Iterable[str]:
    """Milliseconds of eager and of the column, the speedup with its interval, and what that shows."""
    if timing is None:
        return (_DASH,) * 5
    milliseconds = (f"{us / 1e3:,.3f}" for us in (timing.reference_us, timing.candidate_us))
    return (*milliseconds, f"{timing.speedup:.2f}x", f"{timing.low:.2f} to {timing.high:.2f}", timing.label.lower())


def _labels(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[label]:,} {label.lower()}" for label in Label if counts.get(label)) or _DASH


def _ratio(value: float | None) -> str:
    return _DASH if value is None else f"{value:.2f}x"


def _number(value: float | None, form: str) -> str:
    return _DASH if value is None else format(value, form)
