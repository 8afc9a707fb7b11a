"""Times of what ranks answer together, on gloo's ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith import pipeline
from opsmith.core.problems import SHIPPED_PARALLEL, problems_hash
from opsmith.core.run import Options, RunDirectory, Selection, TimedCase
from opsmith.core.timing import Label

SLOW = Path(__file__).parents[1] / "parallel_kernels" / "slow"
#: What the last rank of the slow kernel sleeps, microseconds.
SLEPT_US = 30_000


def times_of(folder: Path, backend: Path | str) -> list[TimedCase]:
    """Time a backend's all-reduce on two ranks."""
    selection = Selection(
        problems=str(SHIPPED_PARALLEL),
        problems_hash=problems_hash(SHIPPED_PARALLEL),
        trials=1,
        sizes="small",
        ranks=(2,),
    )
    options = Options(
        suite="parallel",
        backend=str(backend),
        device="cpu",
        ops=("1_AllReduce",),
        dtypes=("f32",),
        selection=selection,
        timing="quick",
    )
    pipeline.evaluate(options, folder / "run", seed=11, jobs=1)
    return list(RunDirectory(folder / "run").timed_cases())


@pytest.mark.slow
def test_a_call_lasts_until_its_slowest_rank_has_its_result(tmp_path: Path) -> None:
    """The last rank of two sleeps: that is what a call takes."""
    [timed] = times_of(tmp_path, SLOW)
    assert timed.problem is None
    assert timed.offence is None
    [timing] = timed.timings
    assert timing.label is Label.SLOWER
    assert timing.candidate_us >= SLEPT_US


@pytest.mark.slow
def test_ranks_are_as_fast_as_others_that_do_the_same(tmp_path: Path) -> None:
    """The reference against itself: what is found holds 1."""
    [timed] = times_of(tmp_path, "aten")
    assert timed.problem is None
    [timing] = timed.timings
    assert timing.low <= 1 + timing.noise
    assert timing.high >= 1 / (1 + timing.noise)
