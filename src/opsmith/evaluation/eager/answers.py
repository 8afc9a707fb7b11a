"""Eager's answers, of which the large ones stay on the device until somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from opsmith.calls.observer import Observer
from opsmith.calls.outcomes import HeldOutcome
from opsmith.core.case import Outcome


@dataclass(frozen=True)
class Answer:
    """Eager's answer to one call.

    Attributes:
        form: the outcome without its content.
        outcome: gives all of it; what is large stays on the device.
        summary: what stands for it if it is large, else None.
        writes: whether a result is in memory of its own, or an argument was changed.
    """

    form: Outcome
    outcome: Callable[[], HeldOutcome]
    summary: bytes | None
    writes: bool


def answers_of(observer: Observer) -> list[Answer]:
    """The answers that an observer has kept."""
    summaries = observer.summaries()
    if any(summaries):
        outcomes = [partial(observer.held, number) for number in range(len(summaries))]
    else:  # All at once, with one wait for the device.
        outcomes = [partial(lambda outcome: outcome, outcome) for outcome in observer.all_held()]
    return [
        Answer(form, outcome, summary, writes)
        for form, outcome, summary, writes in zip(observer.forms(), outcomes, summaries, observer.writes(), strict=True)
    ]
