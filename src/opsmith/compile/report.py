"""What happened while graphs were compiled, for whoever asks while it happens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import msgspec

from opsmith.trials.book import Trial


class PassReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a pass on one graph.

    Attributes:
        name: of the pass.
        stage: ``traced`` or ``lowered``.
        fired: how often it rewrote something.
        undone: why what it did was taken back, or None.
        differs: where what it makes may return something else than what it replaces, or None.
        nodes_before: nodes of the graph before it ran.
        nodes_after: and after.
        seconds: that it took, with its check.
    """

    name: str
    stage: str
    fired: int
    undone: str | None
    differs: str | None
    nodes_before: int
    nodes_after: int
    seconds: float


class GraphReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the attempt to make a CUDA graph of a compiled graph.

    Attributes:
        reason: why there is none; None where calls repeat one.
        before_us: microseconds of a call without it, or None where that was not measured.
        after_us: the same with it.
        pool_bytes: device memory that it keeps.
        copied: inputs that are copied for each call, because they do not stay where they are.
    """

    reason: str | None = None
    before_us: float | None = None
    after_us: float | None = None
    pool_bytes: int = 0
    copied: int = 0

    def line(self) -> str:
        """In words that follow the graph's name."""
        times = [f"{one:.1f} us" for one in (self.before_us, self.after_us) if one is not None]
        measured = f" ({' -> '.join(times)})" if times else ""
        if self.reason is not None:
            return f"is not replayed as a CUDA graph: {self.reason}{measured}"
        return f"is replayed as a CUDA graph{measured}: {self.pool_bytes / 1e6:.1f} MB, {self.copied} inputs copied"


class Reports:
    """A list that compiling threads append to: backward graphs are compiled where backward runs."""

    def __init__(self) -> None:
        self.passes: list[PassReport] = []
        #: Why a graph was not compiled with passes and kernels, one line each.
        self.fallbacks: list[str] = []
        #: Of CUDA graphs, at the call that decides.
        self.graphs: list[GraphReport] = []
        #: Of ways to make a call, in the order in which graphs asked; a call that is made twice asks twice.
        self.trials: list[Trial] = []


_lock = threading.Lock()
_listening: list[Reports] = []


@contextlib.contextmanager
def collected() -> Iterator[Reports]:
    """All reports of this process from here on until the context ends."""
    reports = Reports()
    with _lock:
        _listening.append(reports)
    try:
        yield reports
    finally:
        with _lock:
            _listening.remove(reports)


def add_passes(reports: Sequence[PassReport]) -> None:
    """Tell everybody who listens what passes did."""
    with _lock:
        for listener in _listening:
            listener.passes.extend(reports)


def add_fallback(reason: str) -> None:
    """Tell everybody who listens that a graph was compiled without opsmith's part."""
    with _lock:
        for listener in _listening:
            listener.fallbacks.append(reason)


def add_graph(report: GraphReport) -> None:
    """Tell everybody who listens whether calls repeat a CUDA graph."""
    with _lock:
        for listener in _listening:
            listener.graphs.append(report)


def add_trial(trial: Trial) -> None:
    """Tell everybody who listens what ways of making a call take."""
    with _lock:
        for listener in _listening:
            listener.trials.append(trial)
