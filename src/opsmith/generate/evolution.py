"""Evolution: islands of kernels, each with the best one of every kind, improved and crossed by whoever writes.

What is kept of an island is its elites (MAP-elites, https://arxiv.org/abs/1504.04909): of each share of the roofline
bound and each kind of code the best kernel, so that a slow kernel of another kind is not lost for a fast one. A member
is shown an elite, or two of different kinds to make one of; now and then the second is of the next island. A strategy
is a pure function of the attempts, so chance is drawn from their numbers.
"""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Sequence
from typing import TypeAlias

from opsmith.core.case import digest
from opsmith.core.seeds import derive_seed
from opsmith.core.syntax_tree import syntax_tree
from opsmith.generate.attempt import Attempt, Move, Outcome, best, is_done

#: Islands at most, and attempts that one is worth.
MOST_ISLANDS, ATTEMPTS_OF_AN_ISLAND = 3, 4
#: How often the best elite is taken, and not any; how often two are crossed.
BEST_SHARE, CROSSING_SHARE = 0.5, 0.4
#: Every so many rounds a crossing has its second kernel of the next island.
MIGRATION_ROUNDS = 3
#: Of the roofline bound, in percent.
BAND_PERCENT = 10.0

#: Band of the roofline, kernels, loops, size.
Cell: TypeAlias = tuple[int, int, int, int]


class Evolve:
    """Every member makes one attempt a round, ``attempts`` in all, on one island after another."""

    name = "evolve"

    def __init__(self, members: int, attempts: int, *, timed: bool) -> None:
        self._members, self._attempts, self._timed = members, attempts, timed
        self._islands = max(1, min(MOST_ISLANDS, members * attempts // ATTEMPTS_OF_AN_ISLAND))

    def moves(self, attempts: Sequence[Attempt]) -> Sequence[Move]:
        """See :meth:`opsmith.generate.strategies.Strategy.moves`."""
        round_number = attempts[-1].round + 1 if attempts else 0
        if round_number == self._attempts or is_done(attempts, timed=self._timed):
            return ()
        return [self._move(member, round_number, attempts) for member in range(self._members)]

    def _island(self, member: int, round_number: int) -> int:
        return (member + round_number) % self._islands

    def _move(self, member: int, round_number: int, attempts: Sequence[Attempt]) -> Move:
        island = self._island(member, round_number)
        own = elites(self._on(island, attempts))
        if not own and _needs_kernels(member, attempts):
            own = elites(attempts)
        if not own:
            return Move(member=member, number=round_number)
        chance = random.Random(derive_seed("evolve", island, round_number, member))  # noqa: S311 - no secret
        top = best(list(own.values()))
        assert top is not None
        parent = top if chance.random() < BEST_SHARE else chance.choice(list(own.values()))
        migrates = self._islands > 1 and round_number % MIGRATION_ROUNDS == 0
        others = elites(self._on((island + 1) % self._islands, attempts)) if migrates else own
        partners = [each for each in others.values() if _kernel(each) != _kernel(parent)]
        if partners and chance.random() < CROSSING_SHARE:
            partner = chance.choice(partners)
            return Move(member=member, number=round_number, shown=(partner.index, parent.index), crosses=True)
        return Move(member=member, number=round_number, shown=(parent.index,))

    def _on(self, island: int, attempts: Sequence[Attempt]) -> list[Attempt]:
        return [attempt for attempt in attempts if self._island(attempt.move.member, attempt.round) == island]


def _needs_kernels(member: int, attempts: Sequence[Attempt]) -> bool:
    """Whether a member had nothing to say when it was to begin anew: a search, or a compiler that has one kernel."""
    own = [attempt for attempt in attempts if attempt.move.member == member and not attempt.move.shown]
    return any(attempt.outcome is Outcome.NO_REPLY for attempt in own)


def elites(attempts: Sequence[Attempt]) -> dict[Cell, Attempt]:
    """Cell -> the best attempt in it: of right kernels, or else of wrong ones."""
    judged = [attempt for attempt in attempts if attempt.judged is not None and not attempt.judged.summary.dishonest]
    judged = [attempt for attempt in judged if attempt.accepted] or judged
    found: dict[Cell, Attempt] = {}
    for attempt in sorted(judged, key=lambda each: each.rank, reverse=True):
        found.setdefault((_band(attempt), *features(attempt.source or "")), attempt)
    return found


def features(source: str) -> tuple[int, int, int]:
    """What kind of code a kernel is: functions that are compiled or launched, loops, and its size by doublings."""
    try:
        tree = syntax_tree(source)
    except SyntaxError:
        return 0, 0, 0
    nodes = list(ast.walk(tree))
    launches = sum(isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) for node in nodes)
    loops = sum(isinstance(node, (ast.For, ast.While)) for node in nodes)
    return min(launches, 3), min(loops, 2), len(nodes).bit_length()


def _band(attempt: Attempt) -> int:
    """Of the roofline bound; by the speedup, in steps of a third of a doubling, where that is not known."""
    assert attempt.judged is not None
    percent, speedup = attempt.judged.summary.percent_of_floor, attempt.judged.speedup
    if percent is not None:
        return int(percent // BAND_PERCENT)
    return -1 if not speedup else 1000 + math.floor(3 * math.log2(speedup))


def _kernel(attempt: Attempt) -> str:
    return digest((attempt.source or "").encode())
