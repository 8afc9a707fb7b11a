"""Figures that compare models and strategies: how many attempts, how much money, who wins where.

An attempt is *right* if its kernel was accepted and not refused by the last judging. A task is *solved* if one of its
kernels is right. The kernel that the last judging accepted is *kept*: it lies in ``kernels/``. Each kept kernel's speed
is what that judging measured; of others it is what the campaign did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from opsmith.generate.attempt import Attempt, best
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.held_out import LastJudged
from opsmith.generate.journal import Exchange
from opsmith.report.conventions import THRESHOLDS, geometric_mean


class AuthorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one model, or all together, did over the tasks of a campaign.

    Attributes:
        attempts: that it made.
        solved: tasks with a right kernel of its own.
        wins: tasks whose kept kernel is its own.
        solved_after: at place n the share of tasks with a right kernel among its first n + 1 attempts.
        fast_p: threshold -> share of tasks with a right kernel whose speedup is above it by the whole of its interval;
            right ones that were not timed count for 0 only.
    """

    attempts: int
    solved: int
    wins: int
    solved_after: tuple[float, ...]
    fast_p: dict[str, float]


class SpendPoint(msgspec.Struct, frozen=True):
    """After one more exchange: spent so far, tasks with a right kernel, geometric mean of their speed-ups."""

    usd: float
    tokens: int
    solved: int
    speedup: float | None


def right(history: TaskHistory, last: Mapping[str, LastJudged]) -> list[Attempt]:
    """The attempts at a task whose kernels are right."""
    judged = last.get(history.task)
    refused = judged.refused if judged is not None else frozenset()
    return [
        attempt
        for attempt in history.attempts
        if attempt.accepted and attempt.judged is not None and attempt.judged.kernel_hash not in refused
    ]


def kept(history: TaskHistory, last: Mapping[str, LastJudged]) -> LastJudged | None:
    """The kernel of a task that the last judging accepted."""
    judged = last.get(history.task)
    return judged if judged is not None and judged.found.accepted else None


def author_figures(
    histories: Sequence[TaskHistory], last: Mapping[str, LastJudged], model: str | None
) -> AuthorFigures:
    """The figures of one model; of all of them together for None."""
    own = [[a for a in history.attempts if model in (None, a.model)] for history in histories]
    works = [[a for a in right(history, last) if model in (None, a.model)] for history in histories]
    winners = [kept(history, last) for history in histories]
    own_winners = [w if w is not None and model in (None, w.attempt.model) else None for w in winners]
    return AuthorFigures(
        attempts=sum(map(len, own)),
        solved=sum(map(bool, works)),
        wins=sum(winner is not None for winner in own_winners),
        solved_after=tuple(_solved_after(own, works)),
        fast_p={
            f"{p:g}": _share(_is_faster(good, winner, p) for good, winner in zip(works, own_winners, strict=True))
            for p in THRESHOLDS
        },
    )


def spending(
    histories: Sequence[TaskHistory], last: Mapping[str, LastJudged], exchanges: Iterable[Exchange]
) -> tuple[SpendPoint, ...]:
    """How money and tokens became kernels, exchange by exchange."""
    works = {a.exchange: (history.task, a) for history in histories for a in right(history, last)}
    seen: dict[str, list[Attempt]] = {}
    usd, tokens, points = 0.0, 0, []
    for exchange in exchanges:
        usd, tokens = usd + (exchange.usd or 0.0), tokens + exchange.tokens
        found = works.get(exchange.request.key)
        if found is not None:
            seen.setdefault(found[0], []).append(found[1])
        tops = [top for top in map(best, seen.values()) if top is not None]
        speedups = [top.judged.speedup for top in tops if top.judged is not None and top.judged.speedup is not None]
        points.append(SpendPoint(usd, tokens, len(tops), geometric_mean(speedups) if speedups else None))
    return tuple(points)


def _solved_after(own: Sequence[Sequence[Attempt]], works: Sequence[Sequence[Attempt]]) -> Iterable[float]:
    firsts = [
        next((place for place, attempt in enumerate(attempts, start=1) if attempt in good), None)
        for attempts, good in zip(own, works, strict=True)
    ]
    for count in range(1, max(map(len, own), default=0) + 1):
        yield _share(first is not None and first <= count for first in firsts)


def _is_faster(works: Sequence[Attempt], winner: LastJudged | None, threshold: float) -> bool:
    """Whether the kept kernel, or else one of the right ones, has all of its interval above the threshold."""
    lows = [winner.found.low] if winner is not None else list(map(_low, works))
    return bool(works) and (threshold == 0 or any(low is not None and low > threshold for low in lows))


def _low(attempt: Attempt) -> float | None:
    """The lower end of the interval of its speedup: of kernel time, or else of call time."""
    lows: dict[str, list[float]] = {}
    for verdict in attempt.judged.verdicts if attempt.judged is not None else ():
        for timing in verdict.timings:
            lows.setdefault(timing.quantity, []).append(timing.low)
    chosen = lows.get("K") or lows.get("E")
    return geometric_mean(chosen) if chosen else None


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else 0.0
