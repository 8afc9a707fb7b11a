"""What happened while graphs were compiled, for whoever asks while it happens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import msgspec


class PassReport(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a pass on one graph.

    Attributes:
        name: of the pass.
        stage: ``traced`` or ``lowered``.
        fired: how often it rewrote something.
        undone: why what it did was taken back, or None.
        nodes_before: nodes of the graph before it ran.
        nodes_after: and after.
        seconds: that it took, with its check.
    """

    name: str
    stage: str
    fired: int
    undone: str | None
    nodes_before: int
    nodes_after: int
    seconds: float


class Reports:
    """A list that compiling threads append to: backward graphs are compiled where backward runs."""

    def __init__(self) -> None:
        self.passes: list[PassReport] = []
        #: Why a graph was not compiled with passes and kernels, one line each.
        self.fallbacks: list[str] = []


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
