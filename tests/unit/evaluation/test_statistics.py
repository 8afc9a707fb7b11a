"""What paired blocks say of a speedup, and when it is called one."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from opsmith.core.timing import Label, RankSpread, Timing
from opsmith.evaluation.timing import statistics
from opsmith.evaluation.timing.statistics import (
    CLAIMING_PROCESSES,
    CONFIDENCE,
    MOST_PROCESSES,
    PRECISIONS,
    PRECISIONS_CPU,
    PRECISIONS_HOST,
    Estimate,
    Precision,
    combined,
    estimate,
    is_in_doubt,
    is_settled,
    label_of,
    precisions_of,
    timing_of,
)

L = Label
QUICK = PRECISIONS["quick"]
SIMULATIONS = 300


def simulated(generator: random.Random, pairs: int, *, speedup: float) -> tuple[list[float], list[float]]:
    """Blocks of two sides on a machine that jitters, gets slower all the while and hiccups at times.

    The sides come in random order, as the clock has them.
    """
    measured: tuple[list[float], list[float]] = ([], [])
    slowness = 1.0
    for _ in range(pairs):
        for side in generator.sample((0, 1), 2):
            slowness *= 1.02
            time_us = slowness * generator.lognormvariate(0.0, 0.03)
            if generator.random() < 0.05:
                time_us *= 2
            measured[side].append(time_us if side else time_us * speedup)
    return measured


def found(low: float, high: float) -> Estimate:
    """An estimate by the ends of its interval, as speedups."""
    low, high = math.log(low), math.log(high)
    return Estimate(centre=(low + high) / 2, low=low, high=high)


def label(low: float, high: float, *, noise: float = 0.0) -> Label:
    """What quick timing says of such an interval."""
    return label_of(found(low, high), QUICK, noise)


def timing(low: float, high: float, precision: Precision = QUICK, *, scale: float = 1.0, discarded: int = 0) -> Timing:
    """The record of one pair of processes with this interval."""
    estimated = found(low, high)
    return timing_of(
        [math.exp(estimated.centre) * scale] * 10,
        [scale] * 10,
        estimated,
        precision=precision,
        noise=0.0,
        calls_per_block=4,
        quantity="E",
        discarded=discarded,
    )


FASTER, SLOWER, SAME, UNDECIDED = (1.09, 1.11), (0.89, 0.91), (0.99, 1.01), (0.9, 1.15)


@pytest.mark.parametrize("speedup", [1.0, 1.05, 0.7])
@pytest.mark.parametrize("pairs", [QUICK.least_pairs, PRECISIONS["full"].least_pairs])
def test_the_interval_holds_the_true_speedup_as_often_as_it_says(pairs: int, speedup: float) -> None:
    """At least 97 times of 100, with jitter, drift and outliers; what it says is 99."""
    generator = random.Random(pairs)
    covered = 0
    for _ in range(SIMULATIONS):
        estimated = estimate(*simulated(generator, pairs, speedup=speedup))
        covered += estimated.low <= math.log(speedup) <= estimated.high
    assert CONFIDENCE == 0.99
    assert covered >= 0.97 * SIMULATIONS


def test_an_interval_is_no_wider_than_the_noise_makes_it() -> None:
    """One that covers everything would say nothing: 24 pairs of 4 % noise give a median within 4 %."""
    generator = random.Random(1)
    widths = [estimate(*simulated(generator, 24, speedup=1.0)).half_width for _ in range(50)]
    assert 0.01 < sorted(widths)[25] < 0.04


@pytest.mark.parametrize("count", range(1, 7))
def test_medians_are_as_likely_as_among_all_samples(count: int) -> None:
    """Of as many numbers, each drawn from all of them."""
    samples = itertools.product(range(count), repeat=count)
    middle = [sorted(sample)[(count - 1) // 2 : count // 2 + 1] for sample in samples]
    expected = Counter((ranks[0], ranks[-1]) for ranks in middle)
    ranks, likely = statistics._medians(count)
    found = {(int(low), int(high)): share * count**count for (low, high), share in zip(ranks.T, likely, strict=True)}
    assert dict(expected) == pytest.approx(found)


def test_many_blocks_are_no_more_work() -> None:
    """Far more than any mode times, of which next to no median is likely."""
    for count in (240, 2_001, 5_000):
        ranks, likely = statistics._medians(count)
        assert ranks.shape[1] < 5_000
        assert likely.sum() == pytest.approx(1)
        assert (count - 1) / 2 == pytest.approx((ranks.mean(axis=0) * likely).sum(), abs=1e-6 * count)


def test_one_wild_block_moves_neither_estimate_nor_interval() -> None:
    """It is a median: somebody else's burst of work is no speedup."""
    quiet = estimate([1.0] * 12, [1.0] * 12)
    wild = estimate([1.0] * 11 + [1_000.0], [1.0] * 12)
    assert quiet == wild == Estimate(centre=0.0, low=0.0, high=0.0)


def test_a_speedup_is_reference_over_candidate() -> None:
    """Half the time is twice the speed."""
    assert math.log(2) == pytest.approx(estimate([4.0] * 10, [2.0] * 10).centre)


def test_the_same_blocks_give_the_same_interval() -> None:
    """Whatever was estimated before, so a report can be made again; their order is that of the pairs alone."""
    one, other = simulated(random.Random(3), 12, speedup=1.0)
    found = estimate(one, other)
    estimate(one[:7], other[:7])
    assert found == estimate(one, other) == estimate(one[::-1], other[::-1])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.03, 1.05, L.FASTER),
        (0.95, 0.97, L.SLOWER),
        (1.001, 1.03, L.SAME),  # Excludes 1, by less than what is claimed.
        (0.995, 1.10, L.UNDECIDED),  # Much, if anything.
        (0.9, 1.005, L.UNDECIDED),
        (1.005, 1.012, L.SAME),
        (0.96, 1.04, L.SAME),
        (0.94, 1.02, L.UNDECIDED),
        (0.98, 1.06, L.UNDECIDED),
        (1.0, 1.5, L.UNDECIDED),  # 1 belongs to the interval.
    ],
)
def test_a_claim_needs_an_effect_and_an_interval_that_excludes_one(low: float, high: float, expected: Label) -> None:
    """Quick timing claims 2 %, and calls sides equal within 5 %."""
    assert expected is label(low, high)


def test_what_equal_sides_differ_by_is_no_effect() -> None:
    """A machine with 8 % noise shows nothing below."""
    assert L.FASTER is label(1.06, 1.07, noise=0.05)
    assert L.UNDECIDED is label(1.06, 1.07, noise=0.08)
    assert L.SLOWER is label(0.93, 0.94, noise=0.05)
    assert L.UNDECIDED is label(0.93, 0.94, noise=0.08)


def test_noise_widens_no_claim_of_equality() -> None:
    """SAME is a promise about the kernel, whatever the machine."""
    assert L.UNDECIDED is label(0.93, 1.07, noise=0.5)


@pytest.mark.parametrize("precisions", [PRECISIONS, PRECISIONS_HOST, PRECISIONS_CPU], ids=["device", "host", "cpu"])
def test_full_timing_is_stricter_in_everything_than_quick(precisions: dict[str, Precision]) -> None:
    """It claims less, is narrower, and takes longer."""
    quick, full = (msgspec.structs.asdict(precisions[mode]) for mode in ("quick", "full"))
    assert {"quick", "full"} == set(precisions)
    assert all(full[name] < quick[name] for name in ("effect", "half_width", "bound"))
    assert all(full[name] > quick[name] for name in ("least_pairs", "most_pairs", "budget_s"))


@pytest.mark.parametrize("precision", [*PRECISIONS.values(), *PRECISIONS_HOST.values(), *PRECISIONS_CPU.values()])
def test_an_interval_that_is_narrow_enough_fits_into_what_is_called_the_same(precision: Precision) -> None:
    """Blocks end when it is narrow, so equal sides would stay undecided otherwise."""
    assert precision.half_width < precision.bound
    assert precision.effect <= precision.bound
    # The range of n values covers the median with 1 - 2 / 2**n, so fewer than eight cannot.
    assert 8 <= precision.least_pairs < precision.most_pairs


@pytest.mark.parametrize(
    ("low", "high", "noise", "is_enough"),
    [
        (1.15, 1.25, 0.0, True),  # Faster by more than the least claim, wherever in it the speedup lies.
        (0.96, 1.05, 0.0, True),  # The same, wherever.
        (1.07, 1.17, 0.0, False),  # As wide, and it may be either.
        (0.85, 0.93, 0.0, False),
        (1.10, 1.15, 0.0, True),  # Either, and as narrow as it has to be.
        (1.15, 1.25, 0.2, False),  # On this machine a claim begins in the midst of it.
        (1.2, 1.4, 0.0, False),
    ],
)
def test_more_pairs_are_timed_where_a_label_is_in_doubt(
    low: float, high: float, noise: float, *, is_enough: bool
) -> None:
    """Or chance would say which one it gets, and another run would say another one."""
    assert is_enough == PRECISIONS_HOST["quick"].is_enough(found(low, high), noise)


def test_what_is_enough_for_e_of_a_host_is_not_for_others() -> None:
    """Nor under full timing."""
    assert not PRECISIONS_HOST["full"].is_enough(found(0.95, 1.05), 0.0)
    assert not PRECISIONS["quick"].is_enough(found(0.96, 1.04), 0.0)


@pytest.mark.parametrize("precision", PRECISIONS_HOST.values(), ids=PRECISIONS_HOST)
def test_who_was_timed_long_enough_gets_a_label(precision: Precision) -> None:
    """Wherever the interval lies: on one side of the claims' beginning it is one, on the other it is the same."""
    half_width = precision.half_width_in_doubt or precision.half_width
    assert (1 + precision.effect) * (1 + half_width) < 1 + precision.bound


@pytest.mark.parametrize(("speedup", "share"), [(1.0, 0.96), (1.12, 0.92), (1.3, 0.96)])
@pytest.mark.slow
def test_an_interval_holds_the_speedup_when_it_was_looked_at_often(speedup: float, share: float) -> None:
    """Pairs end as the interval falls, which costs coverage: most where the speedup is that from which claims begin."""
    precision, generator, covered = PRECISIONS_HOST["quick"], random.Random(3), 0
    for _ in range(SIMULATIONS):
        reference, candidate = simulated(generator, precision.most_pairs, speedup=speedup)
        pairs = precision.least_pairs
        while not precision.is_enough(estimated := estimate(reference[:pairs], candidate[:pairs]), 0.0):
            pairs = precision.next_look(pairs)
        covered += estimated.low <= math.log(speedup) <= estimated.high
    assert covered >= share * SIMULATIONS


def test_a_record_holds_what_was_measured() -> None:
    """Medians of the blocks, the interval as speedups, and what it took."""
    record = timing_of(
        [1.0, 3.0, 2.0],
        [4.0, 6.0, 5.0],
        found(0.4, 0.4),
        precision=QUICK,
        noise=0.01,
        calls_per_block=7,
        quantity="K",
        discarded=2,
    )
    assert (2.0, 5.0) == (record.reference_us, record.candidate_us)
    assert (0.4, 0.4, 0.4) == pytest.approx((record.speedup, record.low, record.high))
    assert (3, 7, "K", 2) == (record.blocks, record.calls_per_block, record.quantity, record.discarded)
    assert (L.SLOWER, 0.01, CONFIDENCE) == (record.label, record.noise, record.confidence)


@pytest.mark.parametrize(
    ("intervals", "settled"),
    [
        ([SAME], True),
        ([FASTER], False),
        ([SLOWER], False),
        ([UNDECIDED], False),
        ([FASTER, FASTER], True),
        ([SLOWER, SLOWER], True),
        ([FASTER, SLOWER], False),
        ([FASTER, SAME], True),
        ([UNDECIDED, FASTER], False),
        ([UNDECIDED, UNDECIDED], False),
        ([FASTER, SLOWER, FASTER], True),
        ([UNDECIDED] * MOST_PROCESSES, True),
    ],
)
def test_a_difference_has_to_show_in_two_pairs_of_processes(
    intervals: Sequence[tuple[float, float]], *, settled: bool
) -> None:
    """Equality needs one; nothing is asked more than three times."""
    assert settled is is_settled([timing(*interval) for interval in intervals])


@pytest.mark.parametrize(
    ("speedup", "visits", "in_doubt"),
    [
        (1.0, 1, False),
        (1.08, 1, True),
        (1.16, 1, True),
        (1 / 1.16, 1, True),
        (1.18, 1, False),
        (1.08, 2, False),  # The mean of two lies nearer to what it is.
        (1.09, 2, True),
    ],
)
def test_a_label_is_in_doubt_near_where_claims_begin(speedup: float, visits: int, *, in_doubt: bool) -> None:
    """Nearer than a host's calls differ by from one time to another; however narrow the interval is."""
    precision = PRECISIONS_HOST["quick"]
    once = timing(0.99 * speedup, 1.01 * speedup, precision)
    assert in_doubt is is_in_doubt(combined([once] * visits, precision), precision)


def test_what_is_undecided_is_in_doubt() -> None:
    """Its interval may be narrower at another time; not on a CPU, where processes were made anew."""
    assert is_in_doubt(timing(0.8, 1.25, PRECISIONS_HOST["quick"]), PRECISIONS_HOST["quick"])
    assert not is_in_doubt(timing(0.8, 1.25, PRECISIONS_CPU["quick"]), PRECISIONS_CPU["quick"])


def test_nothing_is_in_doubt_where_the_number_of_pairs_is_given() -> None:
    """So many were asked for, and no more."""
    precision = precisions_of("quick", "KE", pairs=20)["E"]
    assert not is_in_doubt(timing(1.11, 1.13, precision), precision)


def test_one_pair_of_processes_is_its_own_summary() -> None:
    """Nothing is added to it."""
    assert timing(*SAME) == combined([timing(*SAME)], QUICK)


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([FASTER, FASTER], L.FASTER),
        ([SLOWER, SLOWER], L.SLOWER),
        ([FASTER, SLOWER, FASTER], L.FASTER),
        ([UNDECIDED, FASTER, FASTER], L.FASTER),
        ([FASTER, SLOWER, UNDECIDED], L.UNDECIDED),
        ([SAME, SAME], L.SAME),
    ],
)
def test_several_pairs_of_processes_have_the_label_that_most_of_them_share(
    intervals: Sequence[tuple[float, float]], expected: Label
) -> None:
    """A claim needs two that make it."""
    assert expected is combined([timing(*interval) for interval in intervals], QUICK).label


def test_no_claim_rests_on_one_pair_of_processes() -> None:
    """The median of a large and of no difference looks like half of it: that is not a find."""
    assert CLAIMING_PROCESSES == 2
    runs = [timing(1.4, 1.5), timing(1.001, 1.01)]
    assert [L.FASTER, L.SAME] == [run.label for run in runs]
    assert L.UNDECIDED is combined(runs, QUICK).label


def test_a_summary_holds_medians_and_what_all_took() -> None:
    """Blocks of all pairs of processes count, and those that were discarded."""
    runs = [timing(1.1, 1.2, scale=3.0, discarded=1), timing(1.2, 1.4, scale=5.0), timing(1.3, 1.5, scale=7.0)]
    summary = combined(runs, QUICK)
    assert (3, 30, 1) == (summary.processes, summary.blocks, summary.discarded)
    assert (5.0, 1.2, 1.4) == pytest.approx((summary.candidate_us, summary.low, summary.high))
    assert runs[1].speedup == pytest.approx(summary.speedup)
    assert runs[1].reference_us == pytest.approx(summary.reference_us)


def test_ranks_are_as_far_apart_as_in_most_pairs_of_processes() -> None:
    """Both figures of their own; of one process, and of records from before there were any, nothing is known."""
    spreads = [RankSpread(10.0, 5.0), RankSpread(90.0, 7.0), RankSpread(30.0, 6.0)]
    runs = [msgspec.structs.replace(timing(*SAME), candidate_spread=spread) for spread in spreads]
    assert RankSpread(30.0, 6.0) == combined(runs, QUICK).candidate_spread
    assert combined([timing(*SAME), *runs], QUICK).candidate_spread is None
    assert combined(runs, QUICK).reference_spread is None


def test_a_record_from_before_ranks_were_timed_is_read() -> None:
    """It says nothing of them."""
    record = msgspec.to_builtins(timing(*SAME))
    del record["reference_spread"], record["candidate_spread"]
    assert timing(*SAME) == msgspec.convert(record, Timing)
