"""What became of an op, in one word, and how statuses group for the eye.

A case has a :class:`~opsmith.core.verdict.Status`. An op has many cases, so tables and the page
show the one word that matters most about it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from opsmith.core.run import OpSummary
from opsmith.core.timing import Label
from opsmith.core.verdict import Status


class Group(enum.StrEnum):
    """Statuses that mean the same kind of thing; tables and the page colour by group."""

    RIGHT = "right"
    WRONG = "wrong"
    DIED = "died"
    POLICY = "policy"
    DISHONEST = "dishonest"
    OPEN = "open"


#: An op without a kernel.
NO_KERNEL = "NO_KERNEL"
#: A problem that could not be asked, with a solution of which nothing is known.
NOT_ASKED = "NOT_ASKED"
#: An op with cases that have no verdict yet, and no failure among those that have one.
INCOMPLETE = "INCOMPLETE"

_WRONG = (
    Status.WRONG_VALUE,
    Status.WRONG_SHAPE,
    Status.WRONG_DTYPE,
    Status.WRONG_STRIDE,
    Status.WRONG_DEVICE,
    Status.WRONG_STRUCTURE,
    Status.MUTATED_INPUT,
    Status.ALIASED_OUTPUT,
    Status.DID_NOT_RAISE,
)
_DIED = (
    Status.LOAD_FAILED,
    Status.ERROR,
    Status.TIMEOUT,
    Status.CRASHED,
    Status.OUT_OF_MEMORY,
    Status.OUTPUT_LIMIT,
)
_OPEN = (Status.UNSUPPORTED, Status.REFERENCE_FAILED, Status.NOT_RUN)

_GROUPS: dict[str, Group] = {
    Status.PASSED: Group.RIGHT,
    Status.POLICY: Group.POLICY,
    Status.DISHONEST: Group.DISHONEST,
    Status.VOID: Group.OPEN,
    NOT_ASKED: Group.OPEN,
    **dict.fromkeys(_WRONG, Group.WRONG),
    **dict.fromkeys(_DIED, Group.DIED),
    **dict.fromkeys(_OPEN, Group.OPEN),
    NO_KERNEL: Group.OPEN,
    INCOMPLETE: Group.OPEN,
}


def group(outcome: str) -> Group:
    """The group of a status, or of an op's outcome.

    Raises:
        KeyError: ``outcome`` is neither.
    """
    return _GROUPS[outcome]


def outcome(summary: OpSummary) -> str:
    """The one word for an op.

    In this order: ``VOID``; ``NO_KERNEL``; ``NOT_ASKED``; ``DISHONEST`` if a single verdict is (a bad call's included);
    the most frequent status that is not PASSED, where NOT_RUN, which follows from others, counts
    last; ``POLICY`` if a bad call's or the kernel's conduct is; the most frequent status of the variants;
    ``INCOMPLETE``; ``PASSED``.
    """
    if summary.void is not None:
        return Status.VOID
    if not summary.answered:
        return NO_KERNEL
    if summary.not_asked is not None:
        return NOT_ASKED
    if summary.accepted:
        return Status.PASSED
    if summary.dishonest:
        return Status.DISHONEST
    failing = failing_statuses(summary.statuses) or _of_conduct(summary) or failing_statuses(summary.variants)
    # `statuses` is in the order of the enum, and max keeps the first of equals: no tie is left to chance.
    return max(failing, key=lambda s: (s != Status.NOT_RUN, failing[s])) if failing else INCOMPLETE


def _of_conduct(summary: OpSummary) -> dict[str, int]:
    return {Status.POLICY: summary.policy} if summary.policy else {}


def failing_statuses(statuses: Mapping[str, int]) -> dict[str, int]:
    """Those that are not PASSED; of variants a kernel may decline some."""
    return {status: count for status, count in statuses.items() if status != Status.PASSED}


def urgency(summary: OpSummary) -> int:
    """Sort key for tables: failing ops first, then right ones, then those that nobody answers."""
    if not summary.answered:
        return 2
    return 1 if summary.accepted else 0


class Direction(enum.StrEnum):
    """Where an op's timed cases point, those that show a difference with certainty."""

    FASTER = "faster"
    SLOWER = "slower"
    MIXED = "mixed"
    NEITHER = "neither"


def direction(labels: Mapping[str, int]) -> Direction:
    """The direction of an op.

    Args:
        labels: label -> number of timed cases of one quantity.
    """
    faster, slower = bool(labels.get(Label.FASTER)), bool(labels.get(Label.SLOWER))
    if faster and slower:
        return Direction.MIXED
    if faster or slower:
        return Direction.FASTER if faster else Direction.SLOWER
    return Direction.NEITHER
