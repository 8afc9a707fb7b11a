"""What a run keeps of cases that are timed again at another time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.report_runs import timed_case, verdict

from opsmith.core.run import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of which two visits are kept."""
    run = RunDirectory(tmp_path)
    for op in ("relu.default", "mm.default"):
        run.note_earlier_timing(timed_case(verdict(op)))
    return run


def test_visits_are_kept_in_their_order(run: RunDirectory) -> None:
    """And are no timed cases of the run yet."""
    assert [timed_case(verdict("relu.default")), timed_case(verdict("mm.default"))] == list(run.earlier_timings())
    assert [] == list(run.timed_cases())


def test_a_torn_visit_is_set_aside(run: RunDirectory) -> None:
    """A killed writer leaves half a line, and the next one is not glued to it."""
    path = run.path / "visits.jsonl"
    path.write_bytes(path.read_bytes() + msgspec.json.encode(timed_case(verdict("add.Tensor")))[:40])
    run.recover()
    run.note_earlier_timing(timed_case(verdict("sum.default")))
    assert ["relu.default", "mm.default", "sum.default"] == [timed.op for timed in run.earlier_timings()]
    assert 40 == len((run.path / "visits.damaged-1.jsonl").read_bytes())
