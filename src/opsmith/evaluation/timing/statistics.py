"""What a series of paired blocks says: an estimate of the speedup, an interval on it, and a label.

Blocks of reference and candidate alternate in random order, so that what drifts on the machine hits
both; the log ratio of each pair is one observation. The interval is the percentile bootstrap of
their median (Efron and Tibshirani, An Introduction to the Bootstrap, 1993), with the probability of each
median instead of a draw of samples (Maritz and Jarrett, JASA 73, 1978). Blocks are added until
it is narrow, which does not favour any result, never until it shows something, which would. While it holds a speedup
from which a claim begins, it has to be narrower, so that a label is one that another run finds as well.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from opsmith.core.run import Options
from opsmith.core.timing import Label, RankSpread, Timing, Undecided
from opsmith.devices import kind_of

#: Coverage of the interval on a speedup.
CONFIDENCE = 0.99
#: How many times more pairs there are at each look at the interval than at the one before.
LOOKS_APART = 1.25
#: Medians that are less likely than this are left out: so few of them are left that sorting them takes microseconds.
LEAST_LIKELY = 1e-9


#: What is taken off a block of E is the median of empty round trips, 30 to 60 us beside a device and up to 170 us on a
#: busy CPU. Blocks of equal sides that lasted for less than one trip gave speedups that were the trips' jitter. From
#: two trips on, one that is off by a quarter of itself is an eighth of the block: what E claims at least.
LEAST_TRIPS = 2.0
#: No block is a measurement below this. Of K: ten ticks of a device's events, and five times what a CUDA graph costs.
#: Of E: two trips on an idle machine, however short a trip seems.
LEAST_BLOCK_US = {"K": 10.0, "E": 60.0}


def least_block_us(quantity: str, taken_off_us: float) -> float:
    """How long a block has to be, without what was taken off it, to be a measurement; microseconds.

    Args:
        quantity: ``K`` or ``E``.
        taken_off_us: an empty round trip, or what a CUDA graph costs.
    """
    return max(LEAST_TRIPS * taken_off_us, LEAST_BLOCK_US[quantity])


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """How long a pair is timed.

    Attributes:
        effect: what has to be exceeded to be claimed, as a share.
        half_width: of the interval, at which it is narrow enough, as a share.
        bound: of SAME: the interval lies within so much of no difference.
        least_pairs: so many at least; the range of eight is the first that covers the median 99 times of 100.
        most_pairs: so many at most.
        budget_s: no further pair after this.
        half_width_in_doubt: the same while the interval holds a speedup from which a claim begins; None for no other.
        apart: what the same pair differs by from one time to another, beyond its intervals, as a share; a label that
            depends on no more than that is asked again at another time. 0 for never.
    """

    effect: float
    half_width: float
    bound: float
    least_pairs: int
    most_pairs: int
    budget_s: float
    half_width_in_doubt: float | None = None
    apart: float = 0.0

    def claims_from(self, noise: float) -> float:
        """The logarithm of the least speedup that is claimed where equal sides differ by up to ``noise``, a share."""
        return math.log1p(max(self.effect, noise))

    def is_enough(self, found: Estimate, noise: float) -> bool:
        """Whether an interval is narrow enough to need no further pair, ``noise`` as for :meth:`claims_from`."""
        width, least = self.half_width, self.claims_from(noise)
        if self.half_width_in_doubt is not None and any(found.low < end < found.high for end in (-least, least)):
            width = self.half_width_in_doubt
        return found.half_width <= math.log1p(width)

    def ends(self, found: Estimate, noise: float, *, pairs: int, spent_s: float) -> bool:
        """Whether a series of so many pairs, which took so long, ends with what was found at this look."""
        return self.is_enough(found, noise) or pairs >= self.most_pairs or spent_s > self.budget_s

    def next_look(self, pairs: int) -> int:
        """After how many pairs an interval is looked at again that did not end a series of so many."""
        return min(math.ceil(pairs * LOOKS_APART), self.most_pairs)

    def shows_same(self, found: Estimate) -> bool:
        """Whether an interval lies within the bound of no difference as a whole."""
        bound = math.log1p(self.bound)
        return -bound <= found.low and found.high <= bound


#: Pairs of processes that are timed at most, and those that a claim has to show in.
MOST_PROCESSES = 3
CLAIMING_PROCESSES = 2

#: By ``--timing``: K.
PRECISIONS = {
    "quick": Precision(
        effect=0.025, half_width=0.03, bound=0.05, least_pairs=8, most_pairs=240, budget_s=0.05, apart=0.008
    ),
    "full": Precision(
        effect=0.01, half_width=0.01, bound=0.02, least_pairs=24, most_pairs=1_000, budget_s=5.0, apart=0.005
    ),
}
#: E of a device: what a host takes for a call varies from block to block by ten times as much, and the ratio of two
#: calls by 4 to 5 % from one run to the next, with what others do on the machine.
PRECISIONS_HOST = {
    "quick": msgspec.structs.replace(
        PRECISIONS["quick"],
        effect=0.12,
        half_width=0.065,
        half_width_in_doubt=0.025,
        bound=0.18,
        least_pairs=10,
        budget_s=0.4,
        apart=0.05,
    ),
    "full": msgspec.structs.replace(PRECISIONS["full"], effect=0.05, half_width=0.02, bound=0.08, apart=0.05),
}
#: E of a CPU, where memory's place alone makes equal processes differ by a few percent.
PRECISIONS_CPU = {
    "quick": msgspec.structs.replace(
        PRECISIONS["quick"], effect=0.1, half_width=0.05, bound=0.1, least_pairs=10, budget_s=0.7, apart=0.0
    ),
    "full": msgspec.structs.replace(PRECISIONS["full"], effect=0.05, half_width=0.02, bound=0.05, apart=0.0),
}
#: E of a whole model, whose calls are many: the differences between them cancel out.
PRECISIONS_MODEL = {
    "quick": msgspec.structs.replace(PRECISIONS_HOST["quick"], effect=0.08, bound=0.12, apart=0.0),
    "full": msgspec.structs.replace(PRECISIONS_HOST["full"], apart=0.0),
}


def quantities_on(device: str) -> str:
    """What is measured on a device: the host's time, and where the device can be held up that of kernels."""
    return "KE" if kind_of(device).times_kernels else "E"


def precisions_of(
    mode: str, quantities: str, *, pairs: int | None = None, whole_models: bool = False
) -> dict[str, Precision]:
    """How long each quantity of a pair is timed under ``--timing MODE``; without K it is a CPU's.

    Args:
        mode: ``quick`` or ``full``.
        quantities: ``KE`` or ``E``.
        pairs: so many pairs of blocks, however wide the interval is then, and none at another time; by default until it
            is narrow.
        whole_models: a call is one of a model.
    """
    on_device = PRECISIONS_MODEL if whole_models else PRECISIONS_HOST
    host = on_device if "K" in quantities else PRECISIONS_CPU
    precisions = {quantity: (PRECISIONS if quantity == "K" else host)[mode] for quantity in quantities}
    if pairs is None:
        return precisions
    return {
        quantity: msgspec.structs.replace(precision, least_pairs=pairs, most_pairs=pairs, apart=0.0)
        for quantity, precision in precisions.items()
    }


def precisions_under(options: Options) -> dict[str, Precision]:
    """How long each quantity of a kernel is timed in a run that times."""
    return precisions_of(options.timing, quantities_on(options.device), pairs=options.timing_pairs)


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The median of the log ratios, reference over candidate, and the interval on it."""

    centre: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def estimate(reference_us: Sequence[float], candidate_us: Sequence[float]) -> Estimate:
    """Estimate the log ratio of paired blocks.

    Args:
        reference_us: microseconds a call of the reference, one per block.
        candidate_us: the same for the candidate, block by block in the same order.
    """
    import numpy as np  # At use: the judge starts without it.

    ratios = np.sort(np.log(np.asarray(reference_us)) - np.log(np.asarray(candidate_us)))
    ranks, likely = _medians(len(ratios))
    medians = ratios[ranks].mean(axis=0)
    order = np.argsort(medians)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.searchsorted(np.cumsum(likely[order]), [tail, 1 - tail])
    return Estimate(centre=float(np.median(ratios)), low=float(medians[order[low]]), high=float(medians[order[high]]))


@cache
def _medians(count: int) -> tuple[Any, Any]:
    """The ranks of the two middle ones (or twice of the middle one) of ``count`` numbers that are drawn from as many.

    Returns:
        for each pair of ranks that is likely at all the lower one and the upper one, of shape (2, pairs); and how
        likely it is.
    """
    import numpy as np

    half = count // 2
    # Further from the middle lies nothing that is likely: eight standard deviations.
    width = math.ceil(4 * math.sqrt(count))
    ends = np.arange(max(half - width, 0), min(half + width, count) + 1)
    with np.errstate(divide="ignore"):
        lower, upper = np.log(ends / count), np.log(1 - ends / count)

    def ways(number: int) -> float:
        """Of choosing so many of them, its logarithm."""
        return math.lgamma(count + 1) - math.lgamma(number + 1) - math.lgamma(count - number + 1)

    def at_least(number: int) -> Any:
        """For each of ``ends``, how likely at least so many of those drawn are below it."""
        inner = slice(int(ends[0] == 0), len(ends) - int(ends[-1] == count))
        likely = (ends == count).astype(float)
        for n in range(number, count + 1):
            likely[inner] += np.exp(ways(n) + n * lower[inner] + (count - n) * upper[inner])
        return likely

    ranks = ends[:-1]
    if count % 2:
        pairs, likely = np.stack([ranks, ranks]), np.diff(at_least(half + 1))
    else:
        # Half of them up to a rank that is among them, and the other half from a higher one on that is, too.
        with np.errstate(divide="ignore"):
            up_to = half * lower[1:] + np.log1p(-np.exp(half * (lower[:-1] - lower[1:])))
            from_on = half * upper[:-1] + np.log1p(-np.exp(half * (upper[1:] - upper[:-1])))
        apart = np.triu(np.exp(ways(half) + up_to[:, None] + from_on[None, :]), 1)
        alike = np.diff(at_least(half)) - apart.sum(axis=1)
        places = np.triu_indices(len(ranks))
        pairs, likely = np.stack([ranks[places[0]], ranks[places[1]]]), (apart + np.diag(alike))[places]
    kept = likely > LEAST_LIKELY
    return pairs[:, kept], likely[kept] / likely[kept].sum()


def label_of(found: Estimate, precision: Precision, noise: float) -> Label:
    """What an estimate shows.

    Args:
        noise: what two equal sides differ by at most on this machine, as a share.
    """
    excludes_zero = found.low > 0 or found.high < 0
    if excludes_zero and abs(found.centre) > precision.claims_from(noise):
        return Label.FASTER if found.centre > 0 else Label.SLOWER
    return Label.SAME if precision.shows_same(found) else Label.UNDECIDED


def timing_of(
    reference_us: Sequence[float],
    candidate_us: Sequence[float],
    found: Estimate,
    *,
    precision: Precision,
    noise: float,
    calls_per_block: int,
    quantity: str,
    discarded: int,
    too_short: int = 0,
    disturbed: int = 0,
    disturbed_share: float = 0.0,
    outside_us: float = 0.0,
) -> Timing:
    """The record of one timed quantity."""
    import numpy as np

    return Timing(
        reference_us=float(np.median(reference_us)),
        candidate_us=float(np.median(candidate_us)),
        speedup=math.exp(found.centre),
        low=math.exp(found.low),
        high=math.exp(found.high),
        confidence=CONFIDENCE,
        blocks=len(reference_us),
        calls_per_block=calls_per_block,
        quantity=quantity,
        label=label_of(found, precision, noise),
        noise=noise,
        discarded=discarded,
        too_short=too_short,
        disturbed=disturbed,
        disturbed_share=disturbed_share,
        outside_us=outside_us,
    )


def middle_spread(spreads: Sequence[RankSpread | None]) -> RankSpread | None:
    """The median of each of their figures; None where one is none, or there is none."""
    known = [spread for spread in spreads if spread is not None]
    if not known or len(known) < len(spreads):
        return None
    return RankSpread(
        statistics.median([spread.first_us for spread in known]),
        statistics.median([spread.median_us for spread in known]),
    )


def is_settled(runs: Sequence[Timing]) -> bool:
    """Whether further pairs of processes would add nothing to these runs of one quantity.

    What equal code takes in two processes differs by where their memory happens to lie, for as long as
    they live. So a difference has to show in two pairs of processes, in the same direction.
    """
    if len(runs) >= MOST_PROCESSES or runs[-1].label is Label.SAME:
        return True
    return len(runs) > 1 and runs[-1].label is not Label.UNDECIDED and runs[-1].label is runs[-2].label


def are_settled(told: Sequence[Timing | Undecided]) -> bool:
    """The same of pairs of processes of which nothing could be said of some: as many as were measured are enough."""
    runs = [one for one in told if isinstance(one, Timing)]
    undecided = len(told) - len(runs)
    if undecided > MOST_PROCESSES // 2 or len(told) >= MOST_PROCESSES:
        return True
    return len(runs) > undecided and is_settled(runs)


def is_in_doubt(timing: Timing, precision: Precision) -> bool:
    """Whether a label could well be another one at another time.

    Args:
        timing: of so many times as it has processes.
        precision: of its quantity.
    """
    if not precision.apart:
        return False
    beyond = abs(math.log(timing.speedup)) - precision.claims_from(timing.noise)
    return timing.label is Label.UNDECIDED or abs(beyond) < math.log1p(precision.apart) / math.sqrt(timing.processes)


def combined_of(told: Sequence[Timing | Undecided], precision: Precision) -> Timing | Undecided:
    """The same as :func:`combined`, where nothing could be said of some; nothing can, if it was of half of them."""
    runs = [one for one in told if isinstance(one, Timing)]
    undecided = [one for one in told if isinstance(one, Undecided)]
    return combined(runs, precision) if len(runs) > len(undecided) else undecided[-1]


def combined(runs: Sequence[Timing], precision: Precision) -> Timing:
    """One record of several pairs of processes, or times: the median of each figure, and what they have in common."""
    if len(runs) == 1:
        return runs[0]
    median = statistics.median
    found = Estimate(
        centre=median([math.log(run.speedup) for run in runs]),
        low=median([math.log(run.low) for run in runs]),
        high=median([math.log(run.high) for run in runs]),
    )
    label = label_of(found, precision, runs[0].noise)
    if label in (Label.FASTER, Label.SLOWER) and sum(run.label is label for run in runs) < CLAIMING_PROCESSES:
        label = Label.UNDECIDED
    percents = [run.percent_of_floor for run in runs if run.percent_of_floor is not None]
    return msgspec.structs.replace(
        runs[-1],
        reference_us=median([run.reference_us for run in runs]),
        candidate_us=median([run.candidate_us for run in runs]),
        speedup=math.exp(found.centre),
        low=math.exp(found.low),
        high=math.exp(found.high),
        blocks=sum(run.blocks for run in runs),
        discarded=sum(run.discarded for run in runs),
        too_short=sum(run.too_short for run in runs),
        disturbed=sum(run.disturbed for run in runs),
        disturbed_share=statistics.fmean([run.disturbed_share for run in runs]),
        outside_us=median([run.outside_us for run in runs]),
        label=label,
        processes=len(runs),
        percent_of_floor=median(percents) if percents else None,
        suspect=any(run.suspect for run in runs),
        reference_spread=middle_spread([run.reference_spread for run in runs]),
        candidate_spread=middle_spread([run.candidate_spread for run in runs]),
    )
