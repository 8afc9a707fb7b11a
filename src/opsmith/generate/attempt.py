"""Attempts: what a model was asked to write for a task, what it wrote and what that is worth."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from opsmith.session import Judged

#: Of the least time that the device needs, in percent: who gets there is as good as done.
NEAR_THE_FLOOR_PERCENT = 90.0


class Outcome(enum.StrEnum):
    """How an attempt ended. Only JUDGED has verdicts; whether the kernel is right stands there."""

    JUDGED = "judged"
    NOT_JUDGED = "not judged"
    NO_CODE = "no code"
    NO_REPLY = "no reply"
    LOST = "lost"


#: Languages whose kernels are written and not judged -> why.
NOT_JUDGED_HERE = {"metal": "Metal runs on a Mac, and opsmith judges on Linux"}


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy wants to be asked next.

    Attributes:
        member: index of the model.
        number: tells moves of one member apart that show it the same.
        shown: indices of earlier attempts that the model is shown with what was found, the one to improve last.
        crosses: one kernel is to be made of those that are shown.
    """

    member: int
    number: int
    shown: tuple[int, ...] = ()
    crosses: bool = False


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What an advisor said before an attempt.

    Attributes:
        exchange: key of the exchange.
        hints: the hints, in its order.
    """

    exchange: str
    hints: tuple[str, ...]


class PersonSaid(msgspec.Struct, frozen=True, kw_only=True):
    """What people said of a kernel when its campaign went on.

    Attributes:
        approved: somebody approved it, and nobody rejected it.
        rejected: somebody did.
        text: their comments, as the kernel's writer reads them.
    """

    approved: bool
    rejected: bool
    text: str


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at one task.

    Attributes:
        index: of the attempt among those of its task.
        round: of its strategy.
        move: what was asked for.
        model: who was asked.
        exchange: key of the exchange.
        outcome: how it ended.
        problem: why nothing was judged, in one line; None otherwise.
        file: of the kernel, relative to the campaign's directory; None without code.
        source: of the kernel.
        judged: what was found about it.
        advice: that the writer was given; None without.
        review: what people said of it; None where nobody was asked, or has answered.
    """

    index: int
    round: int
    move: Move
    model: str
    exchange: str
    outcome: Outcome
    problem: str | None = None
    file: str | None = None
    source: str | None = None
    judged: Judged | None = None
    advice: Advice | None = None
    review: PersonSaid | None = None

    @property
    def accepted(self) -> bool:
        """Whether the kernel is right and honest, and nobody rejected it."""
        rejected = self.review is not None and self.review.rejected
        return self.judged is not None and self.judged.accepted and not rejected

    @property
    def rank(self) -> tuple[bool, float, float, int]:
        """Orders attempts: accepted ones by speed, others by the share of cases that passed, earlier ones first."""
        if self.judged is None:
            return False, -1.0, 0.0, -self.index
        summary = self.judged.summary
        share = summary.passed / summary.cases if summary.cases and not summary.dishonest else 0.0
        return self.accepted, share, self.judged.speedup or 0.0, -self.index


def best(attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt that stands highest; None if there is nothing to judge in any."""
    judged = [attempt for attempt in attempts if attempt.judged is not None]
    return max(judged, key=lambda attempt: attempt.rank) if judged else None


def unjudged(attempts: Sequence[Attempt]) -> Attempt | None:
    """The last attempt with a kernel that cannot be judged here; None without one."""
    return next((attempt for attempt in reversed(attempts) if attempt.outcome is Outcome.NOT_JUDGED), None)


def is_done(attempts: Sequence[Attempt], *, timed: bool) -> bool:
    """Whether no attempt can do much better: one is right and, where kernels are timed, near the roofline bound.

    Or one cannot be judged here: nothing is found out that another could be better for.
    """
    if unjudged(attempts) is not None:
        return True
    top = best(attempts)
    if top is None or not top.accepted or top.judged is None:
        return False
    percent = top.judged.summary.percent_of_floor
    return not timed or (percent is not None and percent >= NEAR_THE_FLOOR_PERCENT)
