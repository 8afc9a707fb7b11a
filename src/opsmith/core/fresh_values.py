"""How the values of a timed call are made anew for each set of its inputs and each round."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from opsmith.core.domains import Domain


class Redraw(enum.StrEnum):
    """What becomes of one storage's elements.

    BLENDED: each is a blend of two recorded ones, by a weight of its own. CHOSEN: each is one of two recorded ones.
    DRAWN: all are drawn again from a domain whose elements depend on each other. FIXED: they stay as they are.
    """

    BLENDED = "blended"
    CHOSEN = "chosen"
    DRAWN = "drawn"
    FIXED = "fixed"


class Freshness(enum.StrEnum):
    """How much of a timed call's values no earlier call has met.

    FRESH: all storages are made anew for each call. PARTLY: some are. FIXED: none is, so that each call of the case
    meets the same values.
    """

    FRESH = "fresh"
    PARTLY = "partly fixed"
    FIXED = "fixed"


class Variation(msgspec.Struct, frozen=True, array_like=True):
    """How one storage of a timed call is made anew.

    Attributes:
        how: what becomes of its elements.
        domain: of a storage of bytes, what it is drawn from: DRAWN as a whole, CHOSEN among values of that domain.
        seed: of such a draw; the parts of one description have the same.
        shrunk: all recorded elements are the same number: they are blended or chosen among somewhat smaller ones.
    """

    how: Redraw
    domain: Domain | None = None
    seed: int = 0
    shrunk: bool = False


class KnownDomain(NamedTuple):
    """What is known of a storage's values from the op that they are for.

    Attributes:
        domain: what they are.
        seed: of a draw; the parts of one description have the same.
    """

    domain: Domain
    seed: int


class FreshDraw(msgspec.Struct, frozen=True, array_like=True):
    """Which fresh values a generated storage has: those of one set in one round.

    Attributes:
        how: BLENDED or CHOSEN.
        number: of the storage in its call, so that two of them do not get the same numbers.
        sets: how many sets of inputs there may be.
        key: of the round.
        slot: of the set.
    """

    how: Redraw
    number: int
    sets: int
    key: int
    slot: int
