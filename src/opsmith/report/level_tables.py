"""The scores of module problems as tables of text, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from opsmith.core.run import LevelScores, SpeedScores
from opsmith.report.conventions import THRESHOLDS
from opsmith.report.strangers import one_line


class LevelTable(NamedTuple):
    """A table of text: the first column names a level, the others hold figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def level_tables(levels: Sequence[LevelScores]) -> list[LevelTable]:
    """What is solved and, of a timed run, how fast; none for a run of ops."""
    return [table for table in (_solved(levels), *speed_tables(levels)) if table.rows]


def speed_tables(levels: Sequence[LevelScores]) -> list[LevelTable]:
    """How fast solutions are; none where nothing was timed."""
    return [table for table in (_shares(levels), _speedups(levels)) if table.rows]


def _solved(levels: Sequence[LevelScores]) -> LevelTable:
    ks = list(dict.fromkeys(k for scores in levels for k in scores.pass_at))
    counts = ("problems", "answered", "solved", "samples", "correct", "policy", "void")
    rows = [
        (
            _name(scores.level),
            *(f"{getattr(scores, count):,}" for count in counts),
            *(_share(scores.pass_at.get(k)) for k in ks),
        )
        for scores in levels
    ]
    return LevelTable("Problems by level", ("level", *counts, *(f"pass@{k}" for k in ks)), tuple(rows))


def _shares(levels: Sequence[LevelScores]) -> LevelTable:
    thresholds = [f"{p:g}" for p in THRESHOLDS]
    rows = [
        (_name(scores.level), speeds.quantity, *(_share(speeds.fast[p]) for p in thresholds))
        for scores in levels
        for speeds in scores.speeds
    ]
    return LevelTable("Correct and faster by level", ("level", "", *(f"fast_{p}" for p in thresholds)), tuple(rows))


def _speedups(levels: Sequence[LevelScores]) -> LevelTable:
    rows = [
        (_name(scores.level), speeds.quantity, f"{speeds.timed:,}", *_means(speeds))
        for scores in levels
        for speeds in scores.speeds
    ]
    means = ("geomean", "median", "floored geomean", "floored median")
    return LevelTable("Speedups by level", ("level", "", "timed", *means), tuple(rows))


def _means(speeds: SpeedScores) -> Iterable[str]:
    means = (speeds.geomean, speeds.median, speeds.geomean_floored_at_one, speeds.median_floored_at_one)
    return ("-" if mean is None else f"{mean:.2f}x" for mean in means)


def _name(level: str) -> str:
    return one_line(level) or "-"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
