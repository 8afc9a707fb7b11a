"""Graph passes: named functions that rewrite one kind of graph."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import fx

from opsmith.compile.cache_key import package_content

Rewrite: TypeAlias = Callable[[fx.Graph], int]


class Stage(enum.StrEnum):
    """Which graph a pass rewrites.

    Attributes:
        TRACED: what Dynamo recorded: calls of torch's Python functions and methods, before autograd. A graph
            may mutate tensors here. What is replaced here has the replacement's gradient.
        LOWERED: ATen overloads without mutation, after autograd and Inductor's decompositions: the graphs of
            inference, forward and backward, each by itself.
    """

    TRACED = "traced"
    LOWERED = "lowered"


@dataclass(frozen=True)
class GraphPass:
    """One rewrite of a graph.

    Attributes:
        name: what options, warnings and reports call it.
        stage: the graphs that it takes.
        run: rewrites a graph in place and returns how often it did.
        differs: where results may differ from those of the graph before, in a few words; None: nowhere but by
            rounding.
        key: what its author changes with what it does; None: its package is looked at.
        registered: a hash of its package as it was then; None where there is none.
    """

    name: str
    stage: Stage
    run: Rewrite
    differs: str | None = None
    key: str | None = None
    registered: str | None = None

    def identity(self) -> tuple[str, ...] | None:
        """What tells this version of the pass from others in caches on disk; None where nobody knows.

        A package may have changed since it was imported. Both contents count, so that what one process compiles
        with the old code is never taken for the new one's.
        """
        if self.key is not None:
            return self.name, self.key
        now = package_content(self.run)
        return None if now is None or self.registered is None else (self.name, self.registered, now)
