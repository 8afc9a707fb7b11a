"""Draws as streams of numbers: what comes back, at any distance, and what goes together beyond neighbours.

Draws may have the right distribution, element by element, and still be no random numbers: a half that repeats the
other one, a bank of numbers used in turn, a stream that another seed begins later, an arithmetic progression. Eager's
own draws say what is usual: how often values and sequences of values come up twice, and how far sums of one execution
spread. All draws are ``[K, n]``, an execution a row.
"""

from __future__ import annotations

import math

import torch

from opsmith.evaluation.criteria.results import bits_of

#: So many standard deviations a statistic may be from eager's. Several thousand distances are looked at in one call.
LIMIT = 9.0
#: How many draws of one call are looked at for numbers that come back, and for sequences; how many of these are sorted,
#: and how many elements are looked at for what goes together.
MOST_NUMBERS, MOST_IN_SEQUENCES, MOST_SORTED, MOST_ELEMENTS = 1 << 21, 1 << 18, 1 << 16, 1 << 13
#: Lengths of sequences that are looked for a second time: numbers, 16-bit numbers, bits.
WINDOWS = (1, 8, 64)
#: Sequences of eager's come up twice by chance less than this often where that is told from a repetition.
RARE = 0.5
#: Bins of each of three numbers next to each other, and how many such triples are looked at.
BINS, TRIPLES = 8, 1 << 15
#: Sums of an execution are told from eager's by their spread, over so many elements at least, so many of them without
#: the most frequent value.
FEWEST_SUMMED, FEWEST_RARE = 64, 20
#: A variance of eager's over the candidate's, of as many executions, beyond which chance explains neither: 1e-10.
_UNLIKELY = 1e-10


def complaint(expected: torch.Tensor, got: torch.Tensor, generator: torch.Generator) -> str | None:
    """What shows that a candidate's draws are no independent ones, where eager's are; None if nothing does."""
    if got.shape[1] < 2:
        return None
    return (
        _sequence_twice(expected, got, generator)
        or _distant_relation(expected, got, generator)
        or _triples(expected, got, generator)
        or _too_even(expected, got)
    )


def _sequence_twice(expected: torch.Tensor, got: torch.Tensor, generator: torch.Generator) -> str | None:
    """Sequences of draws that come up a second time, within an execution or in another one."""
    for length in WINDOWS:
        most = MOST_NUMBERS if length == 1 else MOST_IN_SEQUENCES
        rows = max(most // expected.shape[1], 1)
        if length > expected.shape[1]:
            return None
        factors = torch.randint(-(1 << 62), 1 << 62, (length.bit_length(),), generator=generator) * 2 + 1
        counted = [_repeated(side[:rows, : most // rows], factors.tolist()) for side in (expected, got)]
        (usual, total), (found, _) = counted
        if usual <= RARE * total and found - usual > LIMIT * math.sqrt(usual + found + 1) * length:
            what = "numbers" if length == 1 else f"sequences of {length} numbers"
            return f"{what} come up twice: {found:,} of {total:,} draws, of eager's {usual:,}"
    return None


def _repeated(draws: torch.Tensor, factors: list[int]) -> tuple[int, int]:
    """How many sequences of draws are like an earlier one, and how many there are.

    They are twice as long as before for each of the ``factors`` after the first.
    Of many only those are looked at whose hash says so, which are both of two that are alike.
    """
    hashes = (bits_of(draws.contiguous()) if draws.is_floating_point() else draws).long() * factors[0]
    hashes ^= hashes >> 32
    for doubling, factor in enumerate(factors[1:]):
        half = 1 << doubling
        hashes = hashes[:, :-half] * factor + hashes[:, half:]
        hashes ^= hashes >> 29
    every = max(hashes.numel() // MOST_SORTED, 1)
    chosen = hashes[hashes % every == 0] if every > 1 else hashes.flatten()
    ordered = chosen.sort().values
    return int((ordered[1:] == ordered[:-1]).sum()), ordered.numel()


def _scores(draws: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Ranks of each element among its executions, centred and of variance 1, ties in random order."""
    executions = len(draws)
    shuffle = torch.rand(draws.shape, generator=generator, dtype=torch.float64).argsort(0)
    order = shuffle.gather(0, draws.gather(0, shuffle).sort(stable=True, dim=0).indices)
    ranks = torch.arange(executions, dtype=torch.float64)[:, None].expand(draws.shape)
    placed = torch.empty_like(ranks, memory_format=torch.contiguous_format).scatter_(0, order, ranks)
    return (placed - (executions - 1) / 2) / math.sqrt((executions**2 - 1) / 12)


def _distant_relation(expected: torch.Tensor, got: torch.Tensor, generator: torch.Generator) -> str | None:
    """Elements at any distance, or mirrored anywhere, that vary together: sums of their rank correlations."""
    sides = [_scores(side[:, :MOST_ELEMENTS], generator) for side in (expected, got)]
    for sums, says in (
        (_at_distances, "{} apart vary together"),
        (_in_mirrors, "whose numbers add up to {} vary together"),
    ):
        eager, own = (sums(scores) for scores in sides)
        apart = torch.where((own.abs() > LIMIT) & ((own - eager).abs() > LIMIT), own.abs(), 0.0)
        if bool(apart.any()):
            place = int(apart.argmax())
            return f"elements {says.format(place + 1)}: {own[place]:+.1f} standard deviations"
    return None


def _at_distances(scores: torch.Tensor) -> torch.Tensor:
    """For distances 1 to ``n - 1`` the sum of products over pairs and executions, in standard deviations."""
    executions, count = scores.shape
    spectrum = torch.fft.rfft(scores, 2 * count)
    sums = torch.fft.irfft((spectrum * spectrum.conj()).sum(0), 2 * count)[1:count]
    # Ranks of one element add up to nothing, so that of K executions K - 1 are free.
    deviations: torch.Tensor = sums / (executions * (torch.arange(count - 1, 0, -1) / (executions - 1)).sqrt())
    return deviations


def _in_mirrors(scores: torch.Tensor) -> torch.Tensor:
    """The same over pairs of elements whose numbers add up to 1, 2, ... ``2n - 3``."""
    executions, count = scores.shape
    sums = torch.fft.irfft(torch.fft.rfft(scores, 2 * count).square().sum(0), 2 * count)
    sums[: 2 * count - 1 : 2] -= scores.square().sum(0)  # Each element with itself.
    numbers = torch.arange(1, 2 * count - 2)
    pairs = ((torch.minimum(numbers, 2 * count - 2 - numbers) + 1) // 2).clamp(min=1)
    deviations: torch.Tensor = sums[1 : 2 * count - 2] / 2 / (executions * (pairs / (executions - 1)).sqrt())
    return deviations


def _triples(expected: torch.Tensor, got: torch.Tensor, generator: torch.Generator) -> str | None:
    """Three numbers next to each other fill a cube evenly, as eager's do, and lie on no planes or lines."""
    count = got.shape[1] - 2
    if count < 1:
        return None
    each = max(TRIPLES // len(got), 1)
    starts = torch.randperm(count, generator=generator)[:each] if count > each else torch.arange(count)
    uneven = [
        _unevenness(_scores(side[:, starts[:, None] + torch.arange(3)].flatten(1), generator))
        for side in (expected, got)
    ]
    if uneven[1] > LIMIT and uneven[1] > 3 * abs(uneven[0]) + LIMIT:
        return f"three numbers next to each other go together: {uneven[1]:+.1f} standard deviations from even"
    return None


def _unevenness(scores: torch.Tensor) -> float:
    """By how much the counts of cells of a cube vary beyond chance, in standard deviations."""
    executions = len(scores)
    bins = min(BINS, executions)
    uniform = scores * math.sqrt((executions**2 - 1) / 12) + (executions - 1) / 2
    placed = (uniform * bins / executions).floor().long().clamp(0, bins - 1).view(executions, -1, 3)
    cells = placed[..., 0] * bins * bins + placed[..., 1] * bins + placed[..., 2]
    counts = torch.bincount(cells.flatten(), minlength=bins**3).double()
    share = torch.bincount((torch.arange(executions) * bins // executions), minlength=bins).double() / executions
    wanted = (share[:, None, None] * share[:, None] * share).flatten() * counts.sum()
    free = bins**3 - 1
    return float(((counts - wanted).square() / wanted).sum() - free) / math.sqrt(2 * free)


def _too_even(expected: torch.Tensor, got: torch.Tensor) -> str | None:
    """Sums over an execution that spread far less, or more, than eager's: of a progression they are all the same."""
    if got.shape[1] < FEWEST_SUMMED:
        return None
    _, places, counts = torch.cat([expected, got])[:, :MOST_ELEMENTS].unique(return_inverse=True, return_counts=True)
    if min(got.shape[1], MOST_ELEMENTS) * (1 - float(counts.max()) / places.numel()) < FEWEST_RARE:
        return None  # Sums of few rare values are not normal.
    order = ((counts.cumsum(0) - counts / 2).double() / places.numel())[places]
    spreads = [order[rows].sum(1).var() for rows in (slice(len(expected)), slice(len(expected), None))]
    eager, own = (float(spread) for spread in spreads)
    ratio = min(eager, own) / max(eager, own, 1e-300)
    if _tail(ratio, len(expected) - 1) < _UNLIKELY:
        which = "less" if own < eager else "more"
        return f"sums of an execution's draws spread {which} than eager's: {own:.3g} to {eager:.3g}"
    return None


def _tail(ratio: float, free: int) -> float:
    """An upper bound of the chance that one of two variances of ``free`` degrees each is ``ratio`` of the other."""
    # F's density at x is at most x^(free/2 - 1) / B(free/2, free/2).
    log_beta = 2 * math.lgamma(free / 2) - math.lgamma(free)
    return 2 * math.exp(free / 2 * math.log(max(ratio, 1e-300)) - log_beta) / (free / 2)
