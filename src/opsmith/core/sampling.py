"""Drawing a part of what could be asked, so that every op keeps a share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from opsmith.core.case import digest

Item = TypeVar("Item")


def spread_sample(
    by_op: Mapping[str, Sequence[Item]], count: int, *, seed: int, name: Callable[[Item], str]
) -> dict[str, list[Item]]:
    """Draw ``count`` items at random, spread over the ops as evenly as they allow.

    Args:
        by_op: op -> its items, in their order.
        count: how many are drawn; all if there are fewer.
        seed: another one draws others.
        name: tells an item from the others of its op, in every process the same.

    Returns:
        op -> what was drawn of it, in the order of ``by_op``; ops of which nothing was drawn are left out.
    """
    drawn: dict[str, list[Item]] = {}
    left = count
    # Those with the fewest items first: what they cannot give, the others share.
    for number, op in enumerate(sorted(by_op, key=lambda op: (len(by_op[op]), op))):
        own = by_op[op]
        quota = -(-left // (len(by_op) - number))
        ranks = sorted(range(len(own)), key=lambda rank: digest(f"{seed} {name(own[rank])}".encode()))
        drawn[op] = [own[rank] for rank in sorted(ranks[:quota])]
        left -= len(drawn[op])
    return {op: drawn[op] for op in by_op if drawn[op]}
