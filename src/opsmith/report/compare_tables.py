"""Comparisons of runs in the terminal: two of them in detail, any number side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsmith.core.counts import counted
from opsmith.core.run import LevelScores
from opsmith.report.compare import ChangedOp, Comparison, scores_by_level
from opsmith.report.conventions import geometric_mean
from opsmith.report.outcome import Direction
from opsmith.report.results import Results
from opsmith.report.run_table import RunCell, has_changed, run_table
from opsmith.report.speed_changes import ChangedSpeed
from opsmith.report.strangers import one_line
from opsmith.report.tables import speedup

#: Rows of each table.
ROWS = 30
#: Changes of speed up to this much are counted in the mean and not listed.
SHOWN_CHANGE = 0.01
#: So much of why a task did not pass; --csv writes all of it.
WHY_CHARACTERS = 100


def print_runs(runs: Sequence[Results], comparisons: Sequence[Comparison], console: Console) -> None:
    """Print runs side by side: scores by level, then the tasks that differ somewhere."""
    names = [f"{number}: {one_line(str(run.path))}" for number, run in enumerate(runs)]
    for name in names:
        console.print(Text(f"run {name}", style="bright_black"), soft_wrap=True)
    if levels := scores_by_level(runs):
        console.print(_level_table(levels, len(runs)))
    _print_void(console, {f"run {number}": run.summary.void for number, run in enumerate(runs)})
    changed = {task: cells for task, cells in run_table(runs, comparisons).items() if has_changed(cells)}
    console.print(_task_table(changed, len(runs)))
    if len(changed) > ROWS:
        console.print(Text(f"and {len(changed) - ROWS:,} more; --csv writes all of them", style="bright_black"))


def _level_table(levels: Mapping[str, Sequence[LevelScores | None]], runs: int) -> Table:
    table = _table(["level", "", *(f"run {number}" for number in range(runs))])
    for level, scores in levels.items():
        rows = [_level_figures(each) for each in scores]
        for figure in dict.fromkeys(figure for row in rows for figure in row):
            table.add_row(Text(one_line(level) or "-"), figure, *(row.get(figure, "-") for row in rows))
    return table


def _level_figures(scores: LevelScores | None) -> dict[str, str]:
    """The figures of a level in one run that people compare, by name."""
    if scores is None:
        return {}
    figures = {"solved": f"{scores.solved:,} of {scores.problems:,}"}
    figures |= {f"pass@{k}": f"{share:.3f}" for k, share in scores.pass_at.items()}
    for speeds in scores.speeds:
        figures |= {f"fast_{p} {speeds.quantity}": f"{share:.3f}" for p, share in speeds.fast.items()}
        figures[f"geomean {speeds.quantity}"] = speedup(speeds.geomean)
        figures[f"floored {speeds.quantity}"] = speedup(speeds.geomean_floored_at_one)
    return figures


def _task_table(tasks: Mapping[str, Sequence[RunCell]], runs: int) -> Table:
    table = _table([f"{counted(len(tasks), 'task')} differ", *(f"run {number}" for number in range(runs))])
    for task, cells in list(tasks.items())[:ROWS]:
        table.add_row(Text(one_line(task)), *(Text("\n".join(_cell_lines(cell))) for cell in cells))
    return table


def _cell_lines(cell: RunCell) -> Iterable[str]:
    yield "not asked" if cell.outcome is None else cell.outcome
    if cell.why:
        yield cell.why if len(cell.why) <= WHY_CHARACTERS else f"{cell.why[:WHY_CHARACTERS]}..."
    for quantity, value in cell.speedups.items():
        change = cell.changes.get(quantity)
        since = "" if change is None else f" ({change.ratio:.3f} [{change.low:.3f}, {change.high:.3f}])"
        yield f"{quantity} {speedup(value)}{since}"


def _table(titles: Sequence[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number == 0 else "right", overflow="fold")
    return table


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print what changed: totals, then ops lost before ops gained, then the largest changes of speed either way."""
    console.print(Text.assemble(("before ", "bright_black"), one_line(comparison.before)), soft_wrap=True)
    console.print(Text.assemble(("after  ", "bright_black"), one_line(comparison.after)), soft_wrap=True)
    for difference in comparison.differences:
        console.print(Text(f"! {one_line(difference)}", style="yellow"), soft_wrap=True)
    console.print(_totals(comparison))
    _print_void(console, {"before": comparison.void[0], "after": comparison.void[1]})
    _print_ops(console, "lost", comparison.lost, "red")
    _print_ops(console, "gained", comparison.gained, "green")
    _print_ops(console, "failing otherwise", comparison.changed, "yellow")
    console.print(Text(f"{counted(len(comparison.changed_cases), 'case')} of another status"))
    _print_speeds(console, comparison)


def _totals(comparison: Comparison) -> Table:
    table = _table(["", "before", "after", "change"])
    figures = {f"ops {name}": pair for name, pair in comparison.ops.items()}
    figures |= {f"cases {name}": pair for name, pair in comparison.cases.items()}
    for label, (before, after) in figures.items():
        table.add_row(label, f"{before:,}", f"{after:,}", f"{after - before:+,}" if after != before else "=")
    return table


def _print_void(console: Console, of_runs: Mapping[str, Mapping[str, str]]) -> None:
    """Name the void problems, and in which of the runs they are."""
    reasons = {name: reason for void in of_runs.values() for name, reason in void.items()}
    if not reasons:
        return
    console.print(Text(f"\nvoid, in no count and no score ({len(reasons):,})", style="bold"))
    for name, reason in reasons.items():
        runs = [run for run, void in of_runs.items() if name in void]
        where = "" if len(runs) == len(of_runs) else f" (only {', '.join(runs)})"
        console.print(Text(f"  {one_line(name)}{where}  {one_line(reason)}"), soft_wrap=True)


def _print_ops(console: Console, title: str, ops: Sequence[ChangedOp], style: str) -> None:
    if not ops:
        return
    console.print(Text(f"\n{title} ({len(ops):,})", style=f"bold {style}"))
    for op in ops[:ROWS]:
        console.print(
            Text(f"  {one_line(op.op)}  {op.before or 'not asked'} -> {op.after or 'not asked'}"), soft_wrap=True
        )
    if len(ops) > ROWS:
        console.print(Text(f"  and {len(ops) - ROWS:,} more", style="bright_black"))


def _print_speeds(console: Console, comparison: Comparison) -> None:
    for quantity in ("K", "E"):
        speeds = [speed for speed in comparison.speeds if speed.quantity == quantity]
        if not speeds:
            continue
        mean = geometric_mean([speed.ratio for speed in speeds])
        over = counted(len(speeds), "op")
        title = f"\nspeedup {quantity}, after over before: {mean:.3f}x geomean over {over} that both timed"
        console.print(Text(title, style="bold"))
        to_faster, to_slower = _turned(speeds, Direction.FASTER), _turned(speeds, Direction.SLOWER)
        faster, slower = (sum(speed.change is to for speed in speeds) for to in (Direction.FASTER, Direction.SLOWER))
        console.print(Text(f"changed with certainty: {faster:,} got faster, {slower:,} slower"))
        console.print(Text(f"turned with certainty: {to_faster:,} from slower to faster, {to_slower:,} the other way"))
        changed = [speed for speed in speeds if abs(speed.ratio - 1) > SHOWN_CHANGE]
        for speed in changed if len(changed) <= ROWS else changed[: ROWS // 2] + changed[-ROWS // 2 :]:
            interval = f"[{speed.low:.3f}, {speed.high:.3f}]"
            line = f"  {speed.ratio:6.3f}x  {one_line(speed.op)}  {speed.before:.2f}x -> {speed.after:.2f}x  {interval}"
            console.print(Text(line), soft_wrap=True)


def _turned(speeds: Sequence[ChangedSpeed], to: Direction) -> int:
    """Ops whose cases pointed the other way before."""
    ends = {Direction.FASTER, Direction.SLOWER}
    return sum(speed.direction_after is to and {speed.direction_before, to} == ends for speed in speeds)
