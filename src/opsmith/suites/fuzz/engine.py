"""Hypothesis as this project uses it: no database, no deadline, reproducible from a seed alone."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

Example = TypeVar("Example")

#: Of an op that eager refuses so often nothing is drawn, for this dtype at least.
TRIES_FOR_FIRST = 50
TRIES_EACH = 6


def draw(strategy: st.SearchStrategy[Example], *, seed: int, count: int) -> list[Example]:
    """At most ``count`` examples that the strategy does not reject.

    Args:
        strategy: what to draw from.
        seed: the same seed gives the same examples.
        count: of examples.
    """
    found: list[Example] = []
    tries = 0

    @st.composite
    def limited(draw: st.DrawFn) -> Example:
        nonlocal tries
        tries += 1
        if tries > (TRIES_FOR_FIRST if not found else TRIES_EACH * count):
            raise _Enough
        return draw(strategy)

    with contextlib.suppress(_Enough):
        _run(limited(), found.append, seed=seed, count=count, phases=[Phase.generate])
    return found


class Search(Generic[Example]):
    """The search for the smallest example that fails like a known one.

    Hypothesis runs on a thread of its own. It draws the same examples again, is told that the known
    one fails, and proposes smaller ones from then on, one at a time: take a proposal from
    :meth:`propose`, then tell with :meth:`answer` whether it fails too.

    Args:
        strategy: what the example was drawn from.
        seed: as in :func:`draw`.
        count: as in :func:`draw`.
        failing: number of the example that is known to fail.
        identity: names an example; equal ones are proposed once.
        limit_s: how long the search may take.
    """

    def __init__(
        self,
        strategy: st.SearchStrategy[Example],
        *,
        seed: int,
        count: int,
        failing: int,
        identity: Callable[[Example], str],
        limit_s: float,
    ) -> None:
        self._failing = failing
        self._identity = identity
        self._deadline = time.monotonic() + limit_s
        self._drawn = 0
        self._known: dict[str, bool] = {}
        self._proposals: SimpleQueue[Example | None] = SimpleQueue()
        self._answers: SimpleQueue[bool | None] = SimpleQueue()
        run = functools.partial(_run, seed=seed, count=count, phases=[Phase.generate, Phase.shrink])
        self._thread = threading.Thread(target=self._search, args=(run, self._watched(strategy)), daemon=True)
        self._thread.start()

    def propose(self) -> Example | None:
        """The next example to try, or None when the search is over."""
        return self._proposals.get()

    def answer(self, *, failed: bool) -> None:
        """Tell whether the last proposal failed."""
        self._answers.put(failed)

    def stop(self) -> None:
        """Give up the search; a proposal that has no answer yet gets none."""
        self._deadline = 0.0
        self._answers.put(None)
        self._thread.join()

    def _search(self, run: Callable[..., None], strategy: st.SearchStrategy[Example]) -> None:
        with contextlib.suppress(_Failed, _Enough, hypothesis.errors.HypothesisException):
            run(strategy, self._test)
        self._proposals.put(None)

    def _watched(self, strategy: st.SearchStrategy[Example]) -> st.SearchStrategy[Example]:
        """The strategy, which ends the search when its time is over, whether or not anything passes its filters."""

        @st.composite
        def watched(draw: st.DrawFn) -> Example:
            if time.monotonic() > self._deadline:
                raise _Enough
            return draw(strategy)

        return watched()

    def _test(self, example: Example) -> None:
        number, self._drawn = self._drawn, self._drawn + 1
        if number < self._failing:
            return
        name = self._identity(example)
        if number == self._failing:
            self._known[name] = True
        if name not in self._known:
            self._proposals.put(example)
            answer = self._answers.get()
            if answer is None:
                raise _Enough
            self._known[name] = answer
        if self._known[name]:
            raise _Failed


class _Failed(Exception):
    """The example fails: what Hypothesis waits for."""


class _Enough(KeyboardInterrupt):
    """The search is over; Hypothesis lets nothing else through at once."""


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
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
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
        nothing = vars(providers)["Constants"]()
        vars(providers)["_get_local_constants"] = lambda: nothing
