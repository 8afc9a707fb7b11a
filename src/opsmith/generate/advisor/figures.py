"""What an advisor said in a campaign, and what became of that: figures, and what it was shown, for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from opsmith.core.counts import counted
from opsmith.generate.advisor.hints import HintFate, Result, Taken, fates
from opsmith.generate.attempt import Attempt
from opsmith.generate.campaign import TaskHistory
from opsmith.generate.chat import Picture
from opsmith.generate.journal import AskedAs, Journal


class AdvisorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an advisor's hints.

    Attributes:
        model: by name.
        exchanges: that it was sent.
        blind: of them, those whose pictures it was not given, since it takes none.
        pictures: that it was given.
        usd: paid for it, or reserved.
        tokens: likewise.
        hints: that writers were given.
        taken: of them, as writers say.
        not_taken: likewise; of the others they do not say.
        results: of the hints that were not left out: ``faster``, ``slower`` and so on -> number.
    """

    model: str
    exchanges: int
    blind: int
    pictures: int
    usd: float
    tokens: int
    hints: int
    taken: int
    not_taken: int
    results: dict[str, int]

    @property
    def in_words(self) -> str:
        """One line."""
        results = ", ".join(f"{count} {result}" for result, count in self.results.items())
        blind = f"; it takes no pictures, and was given the text of {self.blind}" if self.blind else ""
        return (
            f"advisor: {counted(self.exchanges, 'exchange')}, {self.tokens:,} tokens, {counted(self.hints, 'hint')}, "
            f"{self.taken} taken, {self.not_taken} not taken{'; ' if results else ''}{results}{blind}"
        )


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with an advisor: what that was shown, and what it said.

    Attributes:
        attempt: index of the attempt that it was asked before.
        pictures: that it was shown.
        fates: of its hints.
        blind: it was given no picture, since it takes none.
    """

    attempt: int
    pictures: tuple[Picture, ...]
    fates: tuple[HintFate, ...]
    blind: bool


def advisor_figures(histories: Iterable[TaskHistory], journal: Journal, model: str) -> AdvisorFigures:
    """The figures of a campaign's advisor."""
    exchanges = journal.asked_as(AskedAs.ADVISOR)
    spent = journal.spent_as(AskedAs.ADVISOR)
    given = [fate for history in histories for fate in fates(history.attempts)]
    results = {str(result): sum(f.result is result and f.taken is not Taken.NO for f in given) for result in Result}
    blind = [exchange for exchange in exchanges if exchange.reply is not None and exchange.reply.blind]
    shown = [exchange for exchange in exchanges if exchange not in blind]
    return AdvisorFigures(
        model=model,
        exchanges=len(exchanges),
        blind=len(blind),
        pictures=sum(len(exchange.request.pictures) for exchange in shown),
        usd=spent.usd or 0.0,
        tokens=spent.tokens,
        hints=len(given),
        taken=sum(fate.taken is Taken.YES for fate in given),
        not_taken=sum(fate.taken is Taken.NO for fate in given),
        results={result: count for result, count in results.items() if count},
    )


def seen_by_advisor(journal: Journal, histories: Sequence[TaskHistory]) -> dict[str, list[Shown]]:
    """Task -> what its advisor was shown before which attempt; tasks without advice are left out."""
    found = {history.task: list(_shown(journal, history.attempts)) for history in histories}
    return {task: shown for task, shown in found.items() if shown}


def _shown(journal: Journal, attempts: Sequence[Attempt]) -> Iterable[Shown]:
    told: set[str] = set()
    for attempt in attempts:
        if attempt.advice is None:
            continue
        exchange = journal.exchange(attempt.advice.exchange)
        assert exchange is not None, "its hints are out of the journal"
        # Of several attempts after one exchange the first shows the pictures.
        is_first = exchange.request.key not in told
        told.add(exchange.request.key)
        yield Shown(
            attempt=attempt.index,
            pictures=exchange.request.pictures if is_first else (),
            fates=tuple(fate for fate in fates(attempts) if fate.attempt == attempt.index),
            blind=exchange.reply is not None and exchange.reply.blind,
        )
