"""Figures that compare models and strategies: how many attempts, how much money, who wins where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from opsmith.generate.attempt import Attempt, best
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.journal import Exchange
from opsmith.report.conventions import THRESHOLDS, geometric_mean, is_faster


class AuthorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one model, or all together, did over the tasks of a campaign.

    Attributes:
        attempts: that it made.
        solved: tasks with a right kernel of its own.
        wins: tasks whose best right kernel is its own.
        solved_after: at place n the share of tasks with a right kernel among its first n + 1 attempts.
        fast_p: threshold -> share of tasks with a right kernel that much faster; right ones that were not timed count
            for 0 only.
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


def author_figures(histories: Sequence[TaskHistory], model: str | None) -> AuthorFigures:
    """The figures of one model; of all of them together for None."""
    own = [[a for a in history.attempts if model in (None, a.model)] for history in histories]
    tops = [best(history.attempts) for history in histories]
    return AuthorFigures(
        attempts=sum(map(len, own)),
        solved=sum(any(attempt.accepted for attempt in attempts) for attempts in own),
        wins=sum(top is not None and top.accepted and model in (None, top.model) for top in tops),
        solved_after=tuple(_solved_after(own)),
        fast_p={f"{p:g}": _share(_is_faster(attempts, p) for attempts in own) for p in THRESHOLDS},
    )


def spending(histories: Sequence[TaskHistory], exchanges: Iterable[Exchange]) -> tuple[SpendPoint, ...]:
    """How money and tokens became kernels, exchange by exchange."""
    attempts = {attempt.exchange: (history.task, attempt) for history in histories for attempt in history.attempts}
    seen: dict[str, list[Attempt]] = {}
    usd, tokens, points = 0.0, 0, []
    for exchange in exchanges:
        usd, tokens = usd + (exchange.usd or 0.0), tokens + exchange.tokens
        found = attempts.get(exchange.request.key)
        if found is not None:
            seen.setdefault(found[0], []).append(found[1])
        tops = [top for top in map(best, seen.values()) if top is not None and top.accepted]
        speedups = [top.judged.speedup for top in tops if top.judged is not None and top.judged.speedup is not None]
        points.append(SpendPoint(usd, tokens, len(tops), geometric_mean(speedups) if speedups else None))
    return tuple(points)


def _solved_after(own: Sequence[Sequence[Attempt]]) -> Iterable[float]:
    for count in range(1, max(map(len, own), default=0) + 1):
        yield _share(any(attempt.accepted for attempt in attempts[:count]) for attempts in own)


def _is_faster(attempts: Sequence[Attempt], threshold: float) -> bool:
    """Whether one of them is right with a speedup above the threshold."""
    return any(
        is_faster(attempt.judged.speedup, threshold, correct=attempt.accepted)
        for attempt in attempts
        if attempt.judged is not None
    )


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values) if values else 0.0
