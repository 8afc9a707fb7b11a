"""Provider ``tuner``: other tiles, warps and stages for a Triton kernel that it is shown. No key, no price, no model.

It writes nothing from nothing: in a swarm it varies what others wrote, and alone what ``--references`` holds.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence

from opsmith.core.case import digest
from opsmith.core.seeds import derive_seed
from opsmith.errors import BadInput
from opsmith.generate.chat import NoReply, Reply, Usage
from opsmith.generate.tuning.knobs import Knob, knobs, together, turned

#: Variations that are looked through for one that was not tried.
MOST_LOOKED_THROUGH = 20_000


class TuningAuthor:
    """Varies constants: one at first, then several; those of one name and value together, then each by itself.

    Args:
        model: nothing: there is one.

    Raises:
        BadInput: a model is named.
    """

    name = "tuner"

    def __init__(self, model: str) -> None:
        if model:
            raise BadInput(f"the provider tuner has no models: write --provider tuner, not tuner:{model}")

    def write(self, *_task: object, **_how: object) -> Reply:
        """See :meth:`opsmith.generate.chat.TaskAuthor.write`; raises, since there is nothing to vary."""
        raise NoReply("there is no right kernel yet that could be tuned", may_have_cost=False)

    def vary(self, source: str, tried: Collection[str], *, dsl: str, number: int) -> Reply:
        """See :meth:`opsmith.generate.chat.KernelAuthor.vary`."""
        if dsl != "triton":
            raise NoReply(f"it tunes kernels in triton, not in {dsl}", may_have_cost=False)
        found = knobs(source)
        if not found:
            raise NoReply("the kernel has no constant that could be another one", may_have_cost=False)
        for choice in itertools.islice(_choices(found, source, number), MOST_LOOKED_THROUGH):
            variation = turned(source, choice)
            if digest(variation.encode()) not in tried:
                return Reply(text=f"~~~~python\n{variation}~~~~\n", usage=Usage(0, 0))
        raise NoReply("every variation of the kernel was tried", may_have_cost=False)

    def close(self) -> None:
        """Nothing is held."""


def _choices(found: Sequence[Knob], source: str, number: int) -> itertools.chain[dict[Knob, int]]:
    """Ways to turn one knob, two and three, each in an order that source and number decide on."""
    groups = together(found)
    chance = random.Random(derive_seed("tuning", source, number))  # noqa: S311 - an order, no secret
    ways = ((groups, 1), (groups, 2), (found, 1), (groups, 3), (found, 2))
    return itertools.chain.from_iterable(_shuffled(chosen, count, chance) for chosen, count in ways)


def _shuffled(found: Sequence[Knob], count: int, chance: random.Random) -> list[dict[Knob, int]]:
    ways = [
        dict(zip(chosen, values, strict=True))
        for chosen in itertools.combinations(found, count)
        for values in itertools.product(*(knob.values for knob in chosen))
    ]
    chance.shuffle(ways)
    return ways
