"""Hypothesis as this project uses it: no database, no deadline, reproducible from a seed alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

Example = TypeVar("Example")


def draw(strategy: st.SearchStrategy[Example], *, seed: int, count: int) -> list[Example]:
    """At most ``count`` examples that the strategy does not reject.

    Args:
        strategy: what to draw from.
        seed: the same seed gives the same examples.
        count: of examples.
    """
    found: list[Example] = []
    _run(strategy, found.append, seed=seed, count=count, phases=[Phase.generate])
    return found


def _run(
    strategy: st.SearchStrategy[Example],
    test: Callable[[Example], Any],
    *,
    seed: int,
    count: int,
    phases: list[Phase],
) -> None:
    _forget_local_constants()

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        phases=phases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(strategy)
    def run(example: Example) -> None:
        test(example)

    try:
        run()
    except Unsatisfiable:
        return


def _forget_local_constants() -> None:
    """Draw no numbers that merely occur in the source files which happen to be imported."""
    from hypothesis.internal.conjecture import providers

    if hasattr(providers, "_get_local_constants"):  # Since 6.131.
        nothing = providers.Constants()
        providers._get_local_constants = lambda: nothing
