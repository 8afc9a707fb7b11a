"""A run in the terminal: the headline, one row an op, and the failing cases with their commands."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from rich.console import Console
from rich.console import Group as Stack
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from opsmith.core.counts import counted
from opsmith.core.run import OpSummary, Summary
from opsmith.core.timing import Cause, Label
from opsmith.report.baseline_scores import AgainstFile
from opsmith.report.column_tables import column_tables
from opsmith.report.conventions import BASELINES
from opsmith.report.costs import costs
from opsmith.report.level_tables import LevelTable, level_tables, speed_tables
from opsmith.report.outcome import (
    NO_KERNEL,
    NOT_ASKED,
    Direction,
    Group,
    direction,
    failing_statuses,
    group,
    outcome,
    urgency,
)
from opsmith.report.results import FailingCase, Results
from opsmith.report.strangers import one_line
from opsmith.reviews.records import Standing, State

#: Rows of the table of ops, and failing cases under it.
OP_ROWS = 40
FAILING_CASES = 5
#: Stands before a speedup that no single case bears out.
UNCERTAIN = "~"

_STYLES = {
    Group.RIGHT: "green",
    Group.WRONG: "red",
    Group.DIED: "dark_orange",
    Group.POLICY: "blue",
    Group.DISHONEST: "bold magenta",
    Group.OPEN: "bright_black",
}


def print_results(results: Results, console: Console) -> None:
    """Print the whole report of a run."""
    console.print(verdict_line(results.summary), soft_wrap=False)
    console.print(headline(results))
    for table in (*level_tables(results.summary.levels), *column_tables(results.summary.columns, results.columns)):
        console.print(_level_table(table))
    console.print(op_table(results.summary, reviews=results.reviews))
    for remark in (left_out(results.summary), footnote(results.summary)):
        if remark is not None:
            console.print(remark)
    failing = results.failing(FAILING_CASES, each_once=True)
    if failing:
        console.print()
        what = ", ".join(counted(number, kind) for kind, number in results.failing_parts.items())
        shown = sum(1 + case.alike for case in failing)
        first = "" if shown == results.failing_count else f"; the first {counted(len(failing), 'failure')}"
        console.print(Text(f"What fails: {what}{first}", style="bold"))
        for case in failing:
            console.print(failing_case(case), soft_wrap=True)


def print_against(against: AgainstFile, file: str, console: Console) -> None:
    """Print the scores of module problems against a file of baseline times."""
    console.print(Text(f"\nAgainst {one_line(file)}", style="bold"), soft_wrap=True)
    for note in against.notes:
        console.print(Text(f"! {one_line(note)}", style="yellow"), soft_wrap=True)
    for table in speed_tables(against.levels):
        console.print(_level_table(table))


def verdict_line(summary: Summary) -> Text:
    """The verdict and what decides it, in a line that is wrapped and never cut."""
    ops = summary.per_op
    if summary.accepted_for and not summary.accepted:
        word = Text(f"NOT ACCEPTED, ACCEPTED FOR {', '.join(summary.accepted_for)}", style="bold yellow")
    elif summary.accepted:
        word = Text("ACCEPTED", style="bold green")
    else:
        word = Text("NOT ACCEPTED", style="bold red")
    said = _one_op(*next(iter(ops.items()))) if len(ops) == 1 else _several_ops(summary)
    return Text.assemble(word, "  ", said)


def _one_op(name: str, op: OpSummary) -> str:
    """What decides about an op, as words."""
    name = one_line(name)
    if not op.answered:
        return f"there is no kernel for {name}"
    if op.passed < op.cases:
        unknown = max(0, op.cases - sum(op.statuses.values()))
        failed = op.cases - op.passed - unknown
        said = "its case" if op.cases == 1 else f"{failed:,} of {op.cases:,} cases"
        return f"{name}: {said} did not pass" + (f", {unknown:,} were not judged" if unknown else "")
    passed = f"{name}: {'its case passed' if op.cases == 1 else f'all {op.cases:,} cases passed'}"
    if op.accepted:
        return passed
    if failing := sum(failing_statuses(op.variants).values()):
        return f"{passed}, and {failing:,} of {counted(sum(op.variants.values()), 'variant')} did not"
    return f"{passed}, and the kernel is {outcome(op)}"


def _several_ops(summary: Summary) -> str:
    asked, answered, correct = (summary.ops[name] for name in ("asked", "answered", "correct"))
    parts = [f"{correct:,} of {counted(asked, 'op')} correct"]
    if answered > correct:
        parts.append(f"{answered - correct:,} not")
    if asked > answered:
        parts.append(f"{asked - answered:,} without a kernel")
    return ", ".join(parts)


def headline(results: Results) -> Panel:
    """The panel on top: what was asked of whom, the figures with their denominators, and the remarks."""
    summary = results.summary
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black")
    grid.add_column()
    for label, value in _headline_rows(results):
        grid.add_row(label, value)
    notes = [Text(f"! {one_line(note)}", style="yellow") for note in summary.notes]
    return Panel(Stack(grid, *notes), border_style="bright_black", expand=False)


def _headline_rows(results: Results) -> Iterable[tuple[str, Text]]:
    summary, environment = results.summary, results.manifest.environment
    ops, cases, bad_calls = summary.ops, summary.cases, summary.error_cases
    yield "backend", Text(f"{one_line(summary.backend)} on {one_line(summary.suite)}")
    correct = f"{ops['correct']:,} correct of {ops['asked']:,} asked ({share(ops['correct'], ops['asked'])})"
    yield "ops", Text(f"{correct}; {ops['answered']:,} answered")
    yield "cases", Text(f"{cases['passed']:,} passed of {cases['asked']:,} ({share(cases['passed'], cases['asked'])})")
    if asked := sum(sum(op.variants.values()) for op in summary.per_op.values()):
        failed = sum(sum(failing_statuses(op.variants).values()) for op in summary.per_op.values())
        yield "variants", Text(f"{asked - failed:,} passed of {asked:,}; not among the cases")
    if bad_calls["asked"]:
        yield "bad calls", Text(f"{bad_calls['raised']:,} raised of {bad_calls['asked']:,}; not among the cases")
    if summary.statuses:
        yield "statuses", _statuses(summary.statuses)
    if (remark := refused_by_policy(results)) is not None:
        yield "policy", Text(remark)
    for number, line in enumerate(void_problems(summary)):
        yield "" if number else "void", Text(line)
    if said := review_counts(results):
        yield "reviews", Text(said)
    yield from _timing_rows(results)
    device = f"{summary.device} ({one_line(environment.device_name)})"
    yield "device", Text(f"{device}, {', '.join(summary.dtypes)}, torch {environment.torch}")


def _timing_rows(results: Results) -> Iterable[tuple[str, Text]]:
    """How fast, with what certainty, at what cost beside."""
    summary, baseline = results.summary, results.manifest.options.baseline
    over = "" if baseline == "eager" else f" against {BASELINES[baseline]}"
    for quantity in ("k", "e"):
        if mean := summary.scores.get(f"geomean_{quantity}"):
            figures = f"{mean.value:.2f}x geomean, {summary.scores[f'median_{quantity}'].value:.2f}x median{over}"
            yield f"speedup {quantity.upper()}", Text(f"{figures} over {counted(mean.denominator, 'correct op')}")
        if counts := label_counts(summary, quantity):
            yield "timed cases", Text(f"{quantity.upper()}: {counts}")
    bounds = [summary.scores[name] for name in ("percent_of_floor_k", "percent_of_floor_e") if name in summary.scores]
    if bounds:
        figures = f"{percent(bounds[0].value)} of what this device allows"
        yield "roofline", Text(f"{figures}, median over {counted(bounds[0].denominator, 'timed case')}")
    for quantity in ("k", "e"):
        if score := summary.scores.get(f"sol_score_{quantity}"):
            figures = f"{score.value:.2f} over {counted(score.denominator, 'op')}; 0.50 is the baseline, 1 the roofline"
            yield "SOL score", Text(f"{quantity.upper()}: {figures}")
            break
    if (remark := ranks_apart(results)) is not None:
        yield "ranks", Text(remark)
    if (remark := suspects(results)) is not None:
        yield "suspect", Text(remark)
    if (remark := undecided(results)) is not None:
        yield "undecided", Text(remark)
    yield from ((name, Text(sentence)) for name, sentence in costs(results.timed_cases))


def refused_by_policy(results: Results) -> str | None:
    """How many ops compose what the run's policy does not allow, in words; None: not one."""
    count, policy = results.summary.policy, results.manifest.options.policy
    if not count:
        return None
    ops = "1 op is not correct: its kernel does" if count == 1 else f"{count:,} ops are not correct: their kernels do"
    said = f"{ops} in the open what policy {policy} does not allow"
    return f"{said}; --policy any lets a kernel compose other ops" if policy == "native" else said


def void_problems(summary: Summary) -> Iterable[str]:
    """A line with how many problems are void, then one for each with the reason; none without any."""
    if summary.void:
        count = len(summary.void)
        problems = "1 further problem asks" if count == 1 else f"{count:,} further problems ask"
        yield f"{problems} nothing that a kernel could be judged by; in no count and no score"
    yield from (f"{one_line(name)}: {one_line(reason)}" for name, reason in summary.void.items())


def review_counts(results: Results) -> str:
    """How many kernels are in each state of review; empty where nobody reviewed anything."""
    counts = Counter(standing.state for standing in results.reviews.values())
    return ", ".join(f"{counts[state]:,} {state}" for state in State if counts[state])


def label_counts(summary: Summary, quantity: str) -> str:
    """Timed cases by label, every label named: ``12 faster, 3 slower, 80 same, 5 undecided``; empty without any.

    Args:
        summary: the run's.
        quantity: ``k`` or ``e``.
    """
    counts: Counter[str] = Counter()
    for op in summary.per_op.values():
        counts.update(op.labels_k if quantity == "k" else op.labels_e)
    return ", ".join(f"{counts[label]:,} {label.lower()}" for label in Label) if counts else ""


def ranks_apart(results: Results) -> str | None:
    """How much earlier than the last rank the first one was done, in words; None: no ranks were timed."""
    timings = [timing for verdict in results.verdicts for timing in verdict.timings]
    candidates, references = (
        [spread.first_us for spread in spreads if spread is not None]
        for spreads in ([one.candidate_spread for one in timings], [one.reference_spread for one in timings])
    )
    if not candidates or not references:
        return None
    kernels_us, references_us = statistics.median(candidates), statistics.median(references)
    return (
        f"the first one is done {kernels_us:,.0f} us before the last one, and {references_us:,.0f} us where the "
        f"reference runs; median over {counted(len(candidates), 'timed case')}"
    )


def suspects(results: Results) -> str | None:
    """How many cases are faster than the device was ever measured to be, in words; None: not one."""
    count = sum(any(timing.suspect for timing in verdict.timings) for verdict in results.verdicts)
    beat = "beats" if count == 1 else "beat"
    said = f"{counted(count, 'timed case')} {beat} what this device was measured to reach; verified again"
    return said if count else None


#: Why there is no time, of several of them.
_CAUSES = {
    Cause.TOO_SHORT: "in blocks too short to be measured",
    Cause.BEYOND_DEVICE: "beyond the device on both sides",
    Cause.CUT_OFF: "cut off with the time for the kernel",
}


def undecided(results: Results) -> str | None:
    """Of how many cases nothing can be said though they were timed, and why, in words; None: not one."""
    found = [(verdict.op, one) for verdict in results.verdicts for one in verdict.undecided]
    if not found:
        return None
    counts = Counter(one.cause for _, one in found)
    causes = ", ".join(f"{counts[cause]:,} {words}" for cause, words in _CAUSES.items() if counts[cause])
    op, one = min(found, key=lambda entry: (entry[0], entry[1].quantity, entry[1].reason))
    example = f"{one.quantity} of {one_line(op)} is {one_line(one.reason)}"
    return f"{len(found):,} without a time, counted as undecided: {causes}; for example {example}"


def share(part: int, whole: int) -> str:
    """A percentage that says 100 % only of all and 0 % only of none."""
    if whole == 0:
        return "none asked"
    percent = 100 * part / whole
    if part not in {0, whole}:
        percent = min(max(percent, 0.1), 99.9)
    return f"{percent:.1f} %"


def _level_table(content: LevelTable) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, title=content.title, title_justify="left")
    for number, column in enumerate(content.columns):
        table.add_column(column, justify="right" if number else "left")
    for row in content.rows:
        table.add_row(*map(Text, row))
    return table


def op_table(summary: Summary, rows: int = OP_ROWS, reviews: Mapping[str, Standing] | None = None) -> Table:
    """One row an op: failing ops first, then right ones, then those that nobody answers.

    Args:
        summary: of the run.
        rows: at most so many.
        reviews: op -> what people said of its kernel; a column of its own where there is any.
    """
    shown = _ordered(summary)[:rows]
    columns = _timing_columns(summary)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("op", overflow="fold")
    table.add_column("result")
    table.add_column("passed", justify="right")
    table.add_column("failures", overflow="fold")
    for title in columns:
        table.add_column(title, justify="right")
    if reviews:
        table.add_column("review", overflow="fold")
    for name, op in shown:
        table.add_row(
            Text(one_line(name)),
            _coloured(outcome(op)),
            Text(f"{op.passed}/{op.cases}"),
            _failures(op),
            *(cell(op) for cell in columns.values()),
            *([Text(one_line(reviews[name].text) if name in reviews else "-")] if reviews else []),
        )
    return table


def _timing_columns(summary: Summary) -> dict[str, Callable[[OpSummary], Text]]:
    """Title -> what stands in it, of the columns that some op has a figure for."""
    ops = summary.per_op.values()
    columns: dict[str, Callable[[OpSummary], Text]] = {}
    if any(op.speedup_k is not None for op in ops):
        columns["K"] = lambda op: _speedup_cell(op, "k")
    if any(op.speedup_e is not None for op in ops):
        columns["E"] = lambda op: _speedup_cell(op, "e")
    if any(op.percent_of_floor is not None for op in ops):
        columns["roofline"] = lambda op: Text(percent(op.percent_of_floor))
    return columns


def _speedup_cell(op: OpSummary, quantity: str) -> Text:
    value = op.speedup_k if quantity == "k" else op.speedup_e
    if value is None and (op.labels_k if quantity == "k" else op.labels_e):
        return Text("undecided", style="bright_black")
    if _is_uncertain(op, quantity):
        return Text(UNCERTAIN + speedup(value), style="bright_black")
    return Text(speedup(value))


def _is_uncertain(op: OpSummary, quantity: str) -> bool:
    """Whether the op has a speedup and no case of it shows a difference."""
    labels = op.labels_k if quantity == "k" else op.labels_e
    return op.speedup(quantity.upper()) is not None and direction(labels) is Direction.NEITHER


def _ordered(summary: Summary) -> list[tuple[str, OpSummary]]:
    return sorted(summary.per_op.items(), key=lambda entry: (urgency(entry[1]), entry[0]))


def left_out(summary: Summary, rows: int = OP_ROWS) -> Text | None:
    """The line that says what the table of ops left out, if anything."""
    rest = [op for _, op in _ordered(summary)[rows:]]
    if not rest:
        return None
    failing, right, unanswered = (sum(urgency(op) == rank for op in rest) for rank in range(3))
    more = counted(len(rest), "op")
    return Text(
        f"and {more} more: {failing:,} failing, {right:,} correct, {unanswered:,} without a kernel; "
        "report.html and summary.json have them all",
        style="bright_black",
    )


def footnote(summary: Summary, rows: int = OP_ROWS) -> Text | None:
    """The line that explains the mark of speedups without a certain case, if one stands in the table."""
    if any(_is_uncertain(op, quantity) for _, op in _ordered(summary)[:rows] for quantity in ("k", "e")):
        return Text(f"{UNCERTAIN} no case of the op is faster or slower with certainty", style="bright_black")
    return None


def speedup(value: float | None) -> str:
    """A speedup for a table; a dash where nothing was timed."""
    return "-" if value is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """A percentage for a table; a dash where it is not known."""
    if value is None:
        return "-"
    return f"{value:.0f} %" if value >= 1 else "<1 %"


def failing_case(case: FailingCase) -> Text:
    """A failing case in three lines: status and op, what is wrong, the command that shows it again."""
    text = Text.assemble(_coloured(case.status), " ", (case.op, "bold"), f" {case.inputs}")
    if case.remark:
        text.append(f" ({case.remark})", style="bright_black")
    if case.detail:
        text.append(f"\n  {case.detail}")
    if case.alike:
        text.append(f"\n  and {case.alike:,} more like it", style="bright_black")
    return text.append(f"\n  {case.repro}", style="cyan")


def _statuses(statuses: Mapping[str, int]) -> Text:
    # A no-break space keeps a status and its count on one line.
    parts = [Text(f"{status}\u00a0{count:,}", style=_STYLES[group(status)]) for status, count in statuses.items()]
    return Text(", ").join(parts)


def _failures(op: OpSummary) -> Text:
    failing, variants = failing_statuses(op.statuses), failing_statuses(op.variants)
    if op.accepted_for:
        return _statuses(failing).append(f" accepted for {', '.join(op.accepted_for)}")
    if failing or op.accepted or not variants:
        return _statuses(failing)
    return _statuses(variants).append(" of variants")


def _coloured(word: str) -> Text:
    shown = {NO_KERNEL: "no kernel", NOT_ASKED: "not asked"}.get(word, word)
    return Text(str(shown), style=_STYLES[group(word)])
