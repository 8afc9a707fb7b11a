"""Where the time of a run went: the seconds of its stages."""

from __future__ import annotations

import pytest

from opsmith.pipeline import Silent, TimedStages


def test_each_stage_has_its_seconds_and_one_that_comes_twice_has_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was before the first stage belongs to it."""
    times = iter([3.0, 10.0, 11.5, 20.0])
    monkeypatch.setattr("opsmith.pipeline.time.monotonic", lambda: next(times))
    stages = TimedStages(Silent(), started=1.0)
    stages.stage("starting", 0)
    stages.stage("judging", 5)
    stages.stage("starting", 0)
    assert {"starting": 9.0 + 8.5, "judging": 1.5} == stages.seconds()


def test_progress_is_passed_on() -> None:
    """Whoever draws the stages is told all of it."""
    told: list[object] = []

    class Told(Silent):
        def stage(self, name: str, total: int) -> None:
            told.append((name, total))

        def advance(self, done: int, note: str = "") -> None:
            told.append((done, note))

        def waiting(self, seconds: float) -> None:
            told.append(seconds)

    stages = TimedStages(Told(), started=0.0)
    stages.stage("judging", 5)
    stages.advance(2, "relu")
    stages.waiting(0.5)
    assert [("judging", 5), (2, "relu"), 0.5] == told
