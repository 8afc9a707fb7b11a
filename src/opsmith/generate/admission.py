"""Admission: which exchanges begin, as far as the budget goes.

An exchange is admitted with all that it may lead to: what it may cost, and the seconds that judging its reply may take.
So no reply is paid for that cannot be judged. What is reserved for attempts under way is not spent: whoever does not
fit beside them waits until they have ended, and is refused only if there is no room then either.

With a budget, exchanges are admitted in one order: by round, then by task, then by their place in the round. What is
decided about one then follows from what those before it cost, not from who came first: a campaign is a function of its
journal, on however many processors it runs and however often it is taken up again. Where a provider charges more than
it may (an overrun), what was admitted beside that exchange is not taken back; nothing is admitted afterwards until the
whole sum fits.
"""

from __future__ import annotations

import threading
from typing import TypeAlias

from opsmith.generate.budget import Amount, Budget, Exhausted
from opsmith.generate.chat import Request
from opsmith.generate.journal import AskedAs, Exchange, Journal

#: Round, place of the task, place in the round.
Place: TypeAlias = tuple[int, int, int]


class Stopped(Exception):
    """The campaign is ending: nothing further is begun."""


class Admission:
    """See the module's docstring; used from several threads.

    Args:
        journal: of the campaign.
        budget: its limits.
        tasks: how many tasks there are; each is pursued until it says :meth:`leave`.
        judging_s: seconds that judging one reply may take.
        at_a_time: attempts under way: what is admitted is asked at once.
        offline: nobody can be asked; what the journal does not hold is refused.
    """

    def __init__(
        self,
        journal: Journal,
        budget: Budget,
        *,
        tasks: int,
        judging_s: float,
        at_a_time: int,
        offline: bool = False,
    ) -> None:
        self._journal = journal
        self._budget = budget
        self._judging_s = judging_s
        self._at_a_time = at_a_time
        self._offline = offline
        self._changed = threading.Condition()
        self._next: dict[int, Place] = {number: (0, number, 0) for number in range(tasks)}
        self._under_way: dict[Place, float] = {}
        self._stopped = False

    def enter(
        self, place: Place, request: Request, most: Amount, *, allowance: Budget | None = None
    ) -> Exchange | None:
        """Wait until it is the question's turn and there is room for it; then reserve that.

        Args:
            place: of the question; those of a task come in order.
            request: the question.
            most: what it may cost.
            allowance: of the advisor, who is asked this, what all of its questions may cost; no kernel is judged for
                it. None for a question to a writer.

        Returns:
            What the journal knows of it; None where it has to be asked now. :meth:`leave_room` ends either.

        Raises:
            Exhausted: the budget does not allow it.
            Stopped: the campaign is ending.
        """
        with self._changed:
            self._move(place)
            while not self._stopped and (self._is_full or not self._is_its_turn(place)):
                self._changed.wait()
            # A reply that was paid for is judged, whatever is left: room for that was made when it was asked for.
            known = self._journal.exchange(request.key)
            asks = known is None and not self._offline
            while asks and not self._stopped and (lack := self._lack(most, allowance)) is not None:
                if not self._under_way:
                    raise Exhausted(lack)
                self._changed.wait()
            if self._stopped:
                raise Stopped
            if known is None and self._offline:
                raise Exhausted(f"the journal does not hold exchange {request.key}")
            if known is None:
                self._journal.begin(request, most, AskedAs.WRITER if allowance is None else AskedAs.ADVISOR)
            judges = allowance is None and (known is None or known.reply is not None)
            self._under_way[place] = self._judging_s if judges else 0.0
            number, task, move = place
            self._move((number, task, move + 1))
            return known

    def leave_room(self, place: Place) -> None:
        """What was admitted has ended, its judgement included."""
        with self._changed:
            self._under_way.pop(place, None)
            self._changed.notify_all()

    def expect(self, place: Place) -> None:
        """The next question of a task will have this place at least."""
        with self._changed:
            self._move(place)

    def leave(self, task: int) -> None:
        """A task has no further question."""
        with self._changed:
            self._next.pop(task, None)
            self._changed.notify_all()

    def stop(self) -> int:
        """Admit nothing any more; how many are under way."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            return len(self._under_way)

    @property
    def stopped(self) -> bool:
        """Whether the campaign is ending."""
        return self._stopped

    @property
    def _is_full(self) -> bool:
        return len(self._under_way) >= self._at_a_time

    def _is_its_turn(self, place: Place) -> bool:
        return not self._budget.is_limited or min(self._next.values()) == place

    def _move(self, place: Place) -> None:
        self._next[place[1]] = place
        self._changed.notify_all()

    def _lack(self, most: Amount, allowance: Budget | None) -> str | None:
        """What there is not enough of for one more exchange beside those under way, in one line."""
        spent, budget = self._journal.spent, self._budget
        if allowance is not None:
            own = self._journal.spent_as(AskedAs.ADVISOR)
            return (
                _lack_of("usd", spent.usd, most.usd or 0.0, budget.usd)
                or _lack_of("tokens", spent.tokens, most.tokens, budget.tokens)
                or _lack_of("usd for advice", own.usd or 0.0, most.usd or 0.0, allowance.usd)
                or _lack_of("tokens for advice", own.tokens, most.tokens, allowance.tokens)
            )
        reserved_s = sum(self._under_way.values())
        return (
            _lack_of("usd", spent.usd, most.usd or 0.0, budget.usd)
            or _lack_of("tokens", spent.tokens, most.tokens, budget.tokens)
            or _lack_of("device_s", spent.device_s + reserved_s, self._judging_s, budget.device_s)
        )


def _lack_of(name: str, spent: float, more: float, limit: float | None) -> str | None:
    """Says nothing of what is spent: after a resume that includes exchanges that were admitted later."""
    if limit is None or spent + more <= limit:
        return None
    return f"{name}: of {limit:.6g} too little is left for one more exchange, which may take {more:.6g}"
