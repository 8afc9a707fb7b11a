"""Times of what gloo's ranks answer together: a slow rank is found, and a kernel that cheats or fails has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith import pipeline
from opsmith.core.problems import SHIPPED_PARALLEL, problems_hash
from opsmith.core.run import Options, RunDirectory, Selection, TimedCase
from opsmith.core.timing import Label, Timing
from opsmith.runner.protocol.limits import Limits

TIMED = Path(__file__).parents[1] / "parallel_kernels" / "timed"
CASE = "parallel:1_AllReduce@2:f32:inputs:0:0"
#: Seconds that a call may take.
LIMIT_S = 10.0
#: Microseconds that one rank sleeps in each call: of the planted difference, and where the first rank computes for all.
PLANTED_US, COMPUTED_US = 2_000.0, 20_000.0
#: Processor time of each rank in each call, of the kernel that works early and of its twin.
WORKED_US = 5_000.0


def times_of(folder: Path, kernels: str, *, policy: str = "native") -> list[TimedCase]:
    """Time some kernels of an all-reduce on two ranks, one after the other.

    Args:
        folder: of the run.
        kernels: the letters that their names begin with, in this order.
        policy: whose code may compute.
    """
    backend = folder / "kernels"
    backend.mkdir()
    for source in TIMED.glob("*.py"):
        if source.stem.split("_")[2] in kernels:
            (backend / source.name).write_text(source.read_text())
    options = Options(
        suite="parallel",
        backend=str(backend),
        device="cpu",
        ops=("1_AllReduce",),
        dtypes=("f32",),
        selection=Selection(
            problems=str(SHIPPED_PARALLEL),
            problems_hash=problems_hash(SHIPPED_PARALLEL),
            trials=1,
            sizes="small",
            ranks=(2,),
        ),
        timing="quick",
        policy=policy,
        case=CASE,
    )
    pipeline.evaluate(options, folder / "run", seed=11, jobs=1, limits=Limits(load_s=120.0, call_s=LIMIT_S))
    timed = sorted(RunDirectory(folder / "run").timed_cases(), key=lambda one: one.op)
    assert len(kernels) == len(timed)
    return timed


def timing_of(timed: TimedCase) -> Timing:
    """The time that a case has."""
    assert (None, None) == (timed.problem, timed.offence)
    [timing] = timed.timings
    return timing


def test_every_kernel_is_timed_in_a_test() -> None:
    """None lies in the folder for nothing."""
    assert [*"abcdefghmntu"] == sorted(path.stem.split("_")[2] for path in TIMED.glob("*.py"))


@pytest.mark.slow
def test_a_planted_difference_is_found(tmp_path: Path) -> None:
    """One rank of two sleeps, and its twin does what the reference does; both are held against groups of ranks."""
    twin, sleeper = (timing_of(timed) for timed in times_of(tmp_path, "tu", policy="any"))
    assert twin.label in (Label.SAME, Label.UNDECIDED)
    assert sleeper.candidate_us > PLANTED_US
    assert sleeper.speedup < 1
    # Where others use the processors as well, a call of the reference alone may take as long.
    assert sleeper.label is Label.SLOWER or sleeper.reference_us > PLANTED_US / 2
    for timing in (twin, sleeper):
        for spread in (timing.reference_spread, timing.candidate_spread):
            assert spread is not None
            assert 0 <= spread.median_us <= spread.first_us
    clock = RunDirectory(tmp_path / "run").manifest().clock
    assert clock is not None
    assert {2: twin.noise} == clock.noise_of_ranks
    assert {2} == {pair.ranks for pair in clock.control}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, TimedCase], Path]:
    """What becomes of the kernels that cheat, fail or are honest, by letter, in one run; and its folder."""
    folder, letters = tmp_path_factory.mktemp("timed"), "abcdefghmn"
    return dict(zip(letters, times_of(folder, letters), strict=True)), folder / "run"


Judged = tuple[dict[str, TimedCase], Path]


@pytest.mark.slow
@pytest.mark.corpus
def test_a_rank_that_fails_while_it_is_timed_costs_its_kernels_time_alone(judged: Judged) -> None:
    """It dies, hangs or raises; the kernels after them are timed on clean processes."""
    timed, _ = judged
    assert "rank 1: the process exited with status 3 in the middle of a request" == timed["a"].problem
    # Nobody can tell which of two ranks waits for the other.
    assert f"no answer within {LIMIT_S:g} s" in str(timed["b"].problem)
    assert "raised while it was timed: rank 1: ValueError: no more" == timed["c"].problem
    assert [(), (), ()] == [timed[letter].timings for letter in "abc"]
    assert timing_of(timed["m"]).candidate_us > 0


@pytest.mark.slow
@pytest.mark.corpus
def test_what_timed_ranks_return_is_judged(judged: Judged) -> None:
    """The answer of the call before, and one that is finished when the clock has stopped, are no answers."""
    timed, run = judged
    for letter in "de":
        assert str(timed[letter].offence).startswith("a timed call did not return the answer"), timed[letter].problem
        assert () == timed[letter].timings
    held = {timed[letter].kernel for letter in "de"}
    found = [verdict for verdict in RunDirectory(run).verdicts() if verdict.case == CASE and verdict.kernel in held]
    assert {"DISHONEST"} == {str(verdict.status) for verdict in found}


@pytest.mark.slow
@pytest.mark.corpus
def test_a_rank_that_computes_for_all_is_what_its_kernel_takes(judged: Judged) -> None:
    """The others sleep meanwhile, and have their results as late as the first rank has."""
    timing = timing_of(judged[0]["f"])
    assert timing.candidate_us > COMPUTED_US
    assert timing.label is Label.SLOWER or timing.reference_us > COMPUTED_US / 2


@pytest.mark.slow
@pytest.mark.corpus
def test_work_before_ranks_are_asked_gains_nothing(judged: Judged) -> None:
    """A thread that looks at earlier arguments does not see the next ones, and what it computes would be charged."""
    early, twin = (timing_of(judged[0][letter]) for letter in "gn")
    assert early.candidate_us > 0.8 * WORKED_US
    assert twin.candidate_us > 0.8 * WORKED_US
    assert twin.outside_us < 0.2 * WORKED_US


@pytest.mark.slow
@pytest.mark.corpus
def test_no_call_is_answered_before_its_turn(judged: Judged) -> None:
    """Where arguments of earlier calls lay there are others by now, at other places on each rank."""
    ahead = judged[0]["h"]
    assert () == ahead.timings
    assert ahead.problem or ahead.offence
