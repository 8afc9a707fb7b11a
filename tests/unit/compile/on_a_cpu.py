"""Trials of compiled graphs' calls where a CPU stands for the GPU that they are held on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.compile.trials import calls, trying
from opsmith.trials.book import Trial


@contextmanager
def trials_on_a_cpu(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Have calls on the CPU tried out, with an empty book of trials, and no graph compiled before or left behind.

    C++ is kept: Inductor's ``force_disable_caches`` would compile the same code in each test, for seconds.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setattr(calls, "DEVICE_TYPES", {"cpu"})
    torch._dynamo.reset()
    inductor, functorch = torch._inductor.config, torch._functorch.config
    try:
        with inductor.patch(fx_graph_cache=False), functorch.patch(enable_autograd_cache=False):
            yield
    finally:
        torch._dynamo.reset()


def finding(monkeypatch: pytest.MonkeyPatch, us: Mapping[str, float]) -> None:
    """Trials that find these times, without calling anything."""
    monkeypatch.setattr(trying, "hold_trial", lambda call, ways, **settings: Trial(call=call, us=dict(us)))


def preferring(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Trials in which one way is faster than all others, wherever there is that way."""

    def hold(call: str, ways: Mapping[str, Any], **settings: object) -> Trial:
        return Trial(call=call, us={one: 5.0 if one == way else 9.0 for one in ways})

    monkeypatch.setattr(trying, "hold_trial", hold)
