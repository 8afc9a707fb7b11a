"""Strategies: whom to ask what next, given what was found so far.

A strategy is a pure function of a task's attempts, called round by round: all attempts of a round are made side by
side, and the next round sees all of them. So a campaign that is taken up again, or replayed, asks what it asked before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from opsmith.errors import UnknownName
from opsmith.generate.attempt import Attempt, Move, best, is_done
from opsmith.generate.evolution import Evolve


class Strategy(Protocol):
    """Decides on the moves of each round."""

    name: str

    def moves(self, attempts: Sequence[Attempt]) -> Sequence[Move]:
        """The moves of the next round; none ends the task.

        Args:
            attempts: all that were made, in the order of their index.
        """
        ...


class BestOfN:
    """Every member writes ``attempts`` kernels that know nothing of each other."""

    name = "best-of-n"

    def __init__(self, members: int, attempts: int, *, timed: bool) -> None:
        self._members, self._attempts, self._timed = members, attempts, timed

    def moves(self, attempts: Sequence[Attempt]) -> Sequence[Move]:
        if attempts:
            return ()
        return [Move(member=m, number=n) for n in range(self._attempts) for m in range(self._members)]


class Refine:
    """Every member improves its own last kernel, ``attempts`` times, shown what was found about it.

    Once one of its kernels was right, it is that one, the fastest, that is shown with the last.
    """

    name = "refine"

    def __init__(self, members: int, attempts: int, *, timed: bool) -> None:
        self._members, self._attempts, self._timed = members, attempts, timed

    def moves(self, attempts: Sequence[Attempt]) -> Sequence[Move]:
        if is_done(attempts, timed=self._timed):
            return ()
        return list(filter(None, (self._move(m, _of(attempts, m)) for m in range(self._members))))

    def _move(self, member: int, own: Sequence[Attempt]) -> Move | None:
        if len(own) == self._attempts:
            return None
        return Move(member=member, number=len(own), shown=_best_and_last(own))


class Beam:
    """``width`` kernels are kept, and each is improved by every member, until ``attempts`` rounds are over.

    A kernel that several attempts came to is kept once.
    """

    name = "beam"

    def __init__(self, members: int, attempts: int, *, timed: bool, width: int = 3) -> None:
        self._members, self._attempts, self._timed, self._width = members, attempts, timed, width

    def moves(self, attempts: Sequence[Attempt]) -> Sequence[Move]:
        round_number = attempts[-1].round + 1 if attempts else 0
        if round_number == self._attempts or is_done(attempts, timed=self._timed):
            return ()
        if not attempts:
            return [Move(member=m, number=n) for n in range(self._width) for m in range(self._members)]
        judged = sorted((a for a in attempts if a.judged is not None), key=lambda a: a.rank, reverse=True)
        distinct: dict[str, int] = {}
        for attempt in judged:
            assert attempt.judged is not None
            distinct.setdefault(attempt.judged.kernel_hash, attempt.index)
        kept: list[tuple[int, ...]] = [(index,) for index in list(distinct.values())[: self._width]] or [()]
        # Of the first round they are 0 to width - 1: what is asked again with nothing to show is a further draw.
        number = self._width + round_number - 1
        return [Move(member=m, number=number, shown=shown) for shown in kept for m in range(self._members)]


class Swarm:
    """Every member goes on from its own last kernel, and sees the best one of the others with what was found."""

    name = "swarm"

    def __init__(self, members: int, attempts: int, *, timed: bool) -> None:
        self._members, self._attempts, self._timed = members, attempts, timed

    def moves(self, attempts: Sequence[Attempt]) -> Sequence[Move]:
        if is_done(attempts, timed=self._timed):
            return ()
        return list(filter(None, (self._move(m, attempts) for m in range(self._members))))

    def _move(self, member: int, attempts: Sequence[Attempt]) -> Move | None:
        own = _of(attempts, member)
        if len(own) == self._attempts:
            return None
        others = best([attempt for attempt in attempts if attempt.move.member != member])
        inspiration = (others.index,) if others is not None else ()
        return Move(member=member, number=len(own), shown=(*inspiration, *_best_and_last(own)))


STRATEGIES = {strategy.name: strategy for strategy in (BestOfN, Refine, Beam, Swarm, Evolve)}


def strategy_named(name: str, *, members: int, attempts: int, timed: bool) -> Strategy:
    """Make a strategy.

    Raises:
        UnknownName: there is none of that name.
    """
    if name not in STRATEGIES:
        raise UnknownName("strategy", name, STRATEGIES)
    made: Strategy = STRATEGIES[name](members, attempts, timed=timed)
    return made


def _of(attempts: Sequence[Attempt], member: int) -> list[Attempt]:
    return [attempt for attempt in attempts if attempt.move.member == member]


def _best_and_last(own: Sequence[Attempt]) -> tuple[int, ...]:
    """What a member is shown of its own: the best kernel, and the last attempt if that is another one."""
    if not own:
        return ()
    top = best(own)
    return tuple(dict.fromkeys([top.index, own[-1].index] if top is not None else [own[-1].index]))
