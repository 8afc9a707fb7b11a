"""What suite ``opinfo`` costs: processes that import OpInfo, and samples that are made."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from opsmith import plugins
from opsmith.runner.processes import starting
from opsmith.suites.opinfo import OpInfoSuite


def test_processes_import_opinfo_for_suites_that_may_be_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than everything else that they import; an installed suite is free to use it."""
    monkeypatch.setattr(starting, "Processes", lambda _device, **options: options)

    def imported(suite: str | None) -> Any:
        started: Any = starting.start_processes("cpu", suite=suite)
        return started["with_opinfo"]

    assert ["opinfo"] == [suite for suite in plugins.names(plugins.SUITES) if imported(suite)]
    assert imported("of.somebody")
    assert not imported(None)


def test_a_sample_is_made_without_reading_the_sources_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpInfo looks there for the test that wants it, for a hundred times as long as making it takes."""
    looked: list[str] = []

    def stack() -> list[inspect.FrameInfo]:
        looked.append("stack")
        return []

    monkeypatch.setattr(inspect, "stack", stack)
    assert len(list(OpInfoSuite().calls("nn.functional.relu", "f32", "cpu", 1, lambda *_: True))) > 20
    assert [] == looked
