"""One call on both sides of a clock: how long its blocks took, and whether they say enough."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opsmith.core.timing import Cause, RankSpread, Undecided
from opsmith.evaluation.timing.statistics import Estimate, Precision, estimate
from opsmith.runner.protocol.timing_messages import TimingPrepared

#: Calls that come before each block of E and are not part of it: the first ones after the other side's turn take
#: longer, by more for one side than for the other, and by more at one time than at another. So many at most; this share
#: of the block's, or one; and no more than the last share of the sets of inputs.
WARM_UP_CALLS = 4
WARM_UP_SHARE = 1 / 30
WARM_UP_SHARE_OF_SETS = 1 / 4
#: Of a round's key, which a message carries as a number of 64 bits with a sign.
KEY_BITS = 62
#: Pairs of blocks that say how long blocks are.
SIZING_PAIRS = 3


#: A block is disturbed if waits for a processor that somebody else had are more than this share of it.
DISTURBED_SHARE = 0.05
#: Disturbed pairs that are discarded for each one that counts, besides those that there have to be at least. On two
#: cores with three other programs a quarter of all pairs are disturbed.
DISCARDED_PER_COUNTED = 3
#: If pairs in which the candidate's block alone is disturbed are more than so many, and so many times as many as those
#: in which the reference's alone is, all pairs count.
ONE_SIDED, ONE_SIDED_RATIO = 5, 3


#: What a candidate may use of a processor outside of its blocks, more than the reference: this share of a block, and so
#: many microseconds. Of 54 series of equal sides on two busy cores all but one stayed below.
OUTSIDE_SHARE = 0.1
OUTSIDE_US = 100.0
#: The same of writing inputs, beside the microseconds. Of 24 series of equal sides one differed by 7 %, three by more
#: than 4 %.
WRITING_SHARE = 0.15
#: Turns that have to be known before anything is charged.
LEAST_TURNS = 5
#: A call that warms up takes so many times as long as one of a block.
WARM_UP_LONGER = 2.0


class NotMeasured(Exception):
    """A quantity cannot be measured of this call."""


class Dishonest(Exception):
    """The clock has shown that a kernel does not do what it is timed for."""


class Block(NamedTuple):
    """How long a block took.

    Attributes:
        calls: that it has.
        net_us: of all of them, without what is taken off a block; may be less than nothing.
        least_us: from which on it is a measurement.
        disturbed_us: that the process and the judge waited for processors that others had.
        idle_us: that the process waited awake for the request.
        spread: of ranks, how far apart they were at its end.
        computed_us: of ranks, processor time of all of them; None of one process, which computes all the time.
    """

    calls: int
    net_us: float
    least_us: float
    disturbed_us: float = 0.0
    idle_us: float = 0.0
    spread: RankSpread | None = None
    computed_us: float | None = None

    @property
    def is_disturbed(self) -> bool:
        """Whether that is much of it."""
        return self.disturbed_us > DISTURBED_SHARE * max(self.net_us, self.least_us)

    @property
    def call_us(self) -> float:
        """Of one call."""
        return self.net_us / self.calls

    @property
    def call_at_most_us(self) -> float:
        """The same, of a block that may be too short to be a measurement."""
        return max(self.least_us, self.net_us) / self.calls

    @property
    def is_measurement(self) -> bool:
        """Whether it is long enough, and a number: of K a process says it itself."""
        return self.least_us <= self.net_us < math.inf


class TooShort(NamedTuple):
    """What is known of calls whose blocks are too short to be measurements.

    Attributes:
        quantity: ``K`` or ``E``.
        calls: of a block.
        least_us: from which on a block is a measurement.
        short: the sides whose blocks are too short, 0 for the reference.
        at_most_us: what a call takes at most, on each side.
    """

    quantity: str
    calls: int
    least_us: float
    short: tuple[int, ...]
    at_most_us: tuple[float, float]

    @property
    def undecided(self) -> Undecided:
        """That for the record."""
        sides = " and ".join(("the reference's", "the candidate's")[side] for side in self.short)
        calls = "a call" if self.calls == 1 else f"{self.calls:,} calls"
        least = f"{self.least_us:.3g} us"
        reason = f"too short to be measured: {sides} blocks of {calls}, the most there may be, take less than {least}"
        return Undecided(quantity=self.quantity, cause=Cause.TOO_SHORT, reason=reason)


class Pair:
    """One call on both sides.

    Attributes:
        number: among the calls that are timed together.
        reference_prepared: what the reference said when its inputs were there.
        candidate_prepared: the same of the candidate.
        calls: by quantity, calls of a block; without those that cannot be measured.
        problems: by quantity, why it cannot be measured.
        nodes: of a captured call, on each side.
        round: the key of the last one.

    Args:
        keys: of the rounds, from a secret seed.
    """

    def __init__(self, number: int, reference: TimingPrepared, candidate: TimingPrepared, keys: random.Random) -> None:
        self.number = number
        self._keys = keys
        self.reference_prepared = reference
        self.candidate_prepared = candidate
        self.calls: dict[str, int] = {}
        self.problems: dict[str, NotMeasured] = {}
        self.nodes: list[float | None] = [None, None]
        self.round = 0

    def warm_up_calls(self, calls: int) -> int:
        """How many come before a block of E with so many calls; none before a single one, which is long."""
        if calls == 1:
            return 0
        of_sets = int(self.reference_prepared.slots * WARM_UP_SHARE_OF_SETS)
        return min(WARM_UP_CALLS, max(int(calls * WARM_UP_SHARE), 1), of_sets)

    def is_captured(self) -> bool:
        """Whether K is that of graphs: of both sides or of none.

        Launches of a stream lie further apart than nodes. A reference that launches nothing is told from its graph.
        """
        return self.nodes[0] == 0 or None not in self.nodes

    def new_rounds(self, count: int) -> list[int]:
        """Keys of rounds of values that no call has met, and that follow from no earlier ones."""
        keys = [self._keys.getrandbits(KEY_BITS) for _ in range(count)]
        self.round = keys[-1]
        return keys


class PairedBlocks:
    """The blocks of one pair so far.

    Attributes:
        measured: microseconds a call, of all blocks that count, on each side.
        too_short: pairs of blocks of which one is too short to be a measurement.
        disturbed: pairs that do not count, because others had the processor for a part of one of their blocks.
        spreads: of ranks, how far apart they were at the end of each block that is measured, on each side.

    Args:
        precision: how long a pair is timed.
    """

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self.spreads: tuple[list[RankSpread], list[RankSpread]] = ([], [])
        self._first: list[tuple[Block, Block]] = []
        self.measured: tuple[list[float], list[float]] = ([], [])
        self.too_short: list[tuple[Block, Block]] = []
        self.disturbed: list[tuple[Block, Block]] = []
        self._counted_us = 0.0
        self._all_count = False

    def add(self, reference: Block, candidate: Block) -> bool:
        """Take a pair in, or discard it if it was disturbed; whether it counts.

        There is an end to that, so a machine that never rests is timed as it is. A candidate cannot choose the blocks
        that count by having its slow ones disturbed: if its own are disturbed far more often than the reference's, all
        of them count, those that were discarded before included.
        """
        if self._all_count or not (reference.is_disturbed or candidate.is_disturbed):
            self._count(reference, candidate)
            return True
        counts = len(self.disturbed) >= self._precision.least_pairs + DISCARDED_PER_COUNTED * len(self.measured[0])
        if counts:
            self._count(reference, candidate)
        else:
            self.disturbed.append((reference, candidate))
        theirs, ours = (
            sum(pair[side].is_disturbed and not pair[1 - side].is_disturbed for pair in self.disturbed)
            for side in (1, 0)
        )
        if theirs > ONE_SIDED + ONE_SIDED_RATIO * ours:
            self._all_count = True
            discarded, self.disturbed = self.disturbed, []
            for pair in discarded:
                self._count(*pair)
        return counts

    @property
    def disturbed_share(self) -> float:
        """The share of the time of all blocks that was discarded with them."""
        discarded_us = sum(max(block.net_us, 0.0) for pair in self.disturbed for block in pair)
        return discarded_us / (discarded_us + self._counted_us) if discarded_us else 0.0

    def _count(self, reference: Block, candidate: Block) -> None:
        self._counted_us += max(reference.net_us, 0.0) + max(candidate.net_us, 0.0)
        if len(self._first) < SIZING_PAIRS:
            self._first.append((reference, candidate))
        if reference.is_measurement and candidate.is_measurement:
            for side, block in enumerate((reference, candidate)):
                self.measured[side].append(block.call_us)
                if block.spread is not None:
                    self.spreads[side].append(block.spread)
        else:
            self.too_short.append((reference, candidate))

    @property
    def at_first_us(self) -> float | None:
        """How long the shorter side's blocks were, of the first few pairs; None before they are there."""
        if len(self._first) < SIZING_PAIRS:
            return None
        calls = self._first[0][0].calls
        return calls * min(_at_most_us([pair[side] for pair in self._first]) for side in (0, 1))

    @property
    def are_too_short(self) -> bool:
        """Whether most blocks are, and not only those that happened to be."""
        few = max(self._precision.least_pairs // 2, SIZING_PAIRS - 1)
        return len(self.too_short) > max(len(self.measured[0]), few)

    def what_is_too_short(self, quantity: str) -> TooShort:
        """What the blocks say that are."""
        sides: tuple[list[Block], list[Block]] = ([], [])
        for blocks in self.too_short:
            for side, block in zip(sides, blocks, strict=True):
                side.append(block)
        return TooShort(
            quantity=quantity,
            calls=sides[0][0].calls,
            least_us=statistics.median([block.least_us for block in sides[0]]),
            short=tuple([number for number, side in enumerate(sides) if _are_mostly_short(side)]),
            at_most_us=(_at_most_us(sides[0]), _at_most_us(sides[1])),
        )


class WorkOutside:
    """Processor time that both sides use for a turn besides its block: writing inputs, warming up, waiting awake.

    A candidate may compute there what belongs into its blocks: a thread that sees the inputs while they are written, a
    process that goes on when the calls have returned, a signal's handler, a call that warms up. Both sides do the same
    there otherwise, so what the candidate uses more than the reference, in the median of all turns, is charged to its
    blocks.

    To write inputs can take a hundred times as long as a block, and the same writes differ by some percent from one
    process to another, as their memory lies. So what the first thread uses while it writes, where no code of a kernel
    runs, is held against the reference's by itself.

    Args:
        warm_up_calls: that come before a block.
        calls: of a block.
        ranks: processes of a side, whose processor time is added up.
    """

    def __init__(self, warm_up_calls: int, calls: int, ranks: int = 1) -> None:
        self._warm_up_calls, self._calls = warm_up_calls, calls
        self._least_us = OUTSIDE_US * ranks
        self._turns: list[_Turn | None] = [None, None]
        self._outside: tuple[list[float | None], list[float | None]] = ([], [])
        self._writing: tuple[list[float], list[float]] = ([], [])
        self._blocks: tuple[list[float], list[float]] = ([], [])

    def begin_turn(self, side: int, used_us: float, first_thread_us: float) -> None:
        """A side's turn begins, and its last one is over, when it has used so much processor time altogether.

        Args:
            side: 0 is the reference.
            used_us: processor time of all that computes for the side.
            first_thread_us: that of the thread which writes inputs and makes calls.
        """
        before = self._turns[side]
        if before is not None and before.block is not None:
            block = before.block
            computed_us = block.computed_us
            if computed_us is None and not block.is_disturbed:
                computed_us = block.net_us + block.idle_us
            # Of a disturbed block of one process nobody knows how much of it was computing.
            self._outside[side].append(
                None if computed_us is None else used_us - before.used_us - before.writing_us - computed_us
            )
            self._writing[side].append(before.writing_us)
            self._blocks[side].append(block.net_us if block.computed_us is None else block.computed_us)
        self._turns[side] = _Turn(used_us, first_thread_us)

    def end_writing(self, side: int, first_thread_us: float) -> None:
        """Inputs are written when the first thread has used so much."""
        turn = self._turn(side)
        turn.writing_us = first_thread_us - turn.first_thread_us

    def idle(self, side: int, idle_us: float) -> None:
        """The process waited awake for a request, which is nobody's work."""
        self._turn(side).used_us += idle_us

    def end_block(self, side: int, block: Block) -> None:
        """How long the turn's block took."""
        self._turn(side).block = block

    def _turn(self, side: int) -> _Turn:
        turn = self._turns[side]
        assert turn is not None
        return turn

    @property
    def charged_us(self) -> float:
        """Microseconds a block of the candidate's; 0 while it is no more than what equal sides differ by."""
        excess = [
            theirs - ours
            for ours, theirs in zip(*self._outside, strict=False)
            if ours is not None and theirs is not None
        ]
        if len(excess) < LEAST_TURNS:
            return 0.0
        reference_us, candidate_us = (statistics.median(blocks) for blocks in self._blocks)
        # Calls that warm up are the first ones, which take longer.
        warm_up_us = self._warm_up_calls / self._calls * (WARM_UP_LONGER * candidate_us - reference_us)
        charged_us = statistics.median(excess) - max(warm_up_us, 0.0)
        charged_us = charged_us if charged_us > OUTSIDE_SHARE * candidate_us + self._least_us else 0.0
        ours_us, theirs_us = (statistics.median(writing) for writing in self._writing)
        writing_us = theirs_us - ours_us
        return charged_us + (writing_us if writing_us > WRITING_SHARE * ours_us + self._least_us else 0.0)


@dataclass
class _Turn:
    """A turn of one side so far.

    Attributes:
        used_us: processor time of the side when it began, and what it has idled since.
        first_thread_us: the first thread's when it began.
        writing_us: what that has used until inputs were written.
        block: the turn's.
    """

    used_us: float
    first_thread_us: float
    writing_us: float = 0.0
    block: Block | None = None


class Series:
    """The blocks of one pair, turn by turn, until they say enough.

    Attributes:
        pair: whose blocks these are.
        rounds: of the blocks of this turn.
        turn: the blocks of this turn, on each side.
        blocks: all that were made before, without those that are discarded.
        outside: what else both sides compute; None where turns are shared with other pairs, or calls run on a device.
        discarded: blocks that do not count, because the device's clock was throttled.
        spent_s: that all blocks that count and what belongs to them took so far.
        problem: why there is no time.
        found: the estimate, at the end.
        is_sized: whether the number of calls of a block is final.

    Args:
        precision: how long a pair is timed.
        noise: what two equal sides differ by at most, as a share.
        looked_at: the candidate's block of which a result is looked at. It ends its turn: the next one would write
            over the result, and to look takes a change from one process to the other and back.
    """

    def __init__(self, pair: Pair, precision: Precision, noise: float, *, looked_at: int) -> None:
        self.pair = pair
        self._precision = precision
        self._noise = noise
        self._looked_at = looked_at
        self._next_look = precision.least_pairs
        self.rounds: list[int] = []
        self.turn: tuple[list[Block], list[Block]] = ([], [])
        self.blocks = PairedBlocks(precision)
        self.outside: WorkOutside | None = None
        self._ranks = 1
        self.discarded = 0
        self.spent_s = self._spent_before_s = 0.0
        self.problem: NotMeasured | None = None
        self.found: Estimate | None = None
        self.is_sized = False

    def begin_turn(self, blocks: int) -> None:
        """Of so many blocks at most."""
        self.turn = ([], [])
        self._spent_before_s = self.spent_s
        measured, precision = len(self.measured[0]), self._precision
        ends = (self._looked_at + 1, precision.least_pairs, precision.most_pairs)
        self.rounds = self.pair.new_rounds(min(blocks, *(end - measured for end in ends if end > measured)))

    @property
    def is_looked_at(self) -> bool:
        """Whether a result of the turn's last block is."""
        return len(self.measured[0]) + len(self.rounds) == self._looked_at + 1

    @property
    def measured(self) -> tuple[list[float], list[float]]:
        """Microseconds a call, of all blocks that count, on each side, with what is charged to the candidate."""
        reference_us, candidate_us = self.blocks.measured
        charged_us = self.charged_us
        return reference_us, [us + charged_us for us in candidate_us] if charged_us else candidate_us

    @property
    def charged_us(self) -> float:
        """Microseconds a call that the candidate has computed outside of its blocks."""
        return 0.0 if self.outside is None else self.outside.charged_us / self.pair.calls["E"]

    def watch_outside(self, ranks: int = 1) -> None:
        """Charge the candidate of E on a CPU, whose turns are its own, with what it computes outside of its blocks."""
        calls = self.pair.calls["E"]
        self.outside = WorkOutside(self.pair.warm_up_calls(calls), calls, ranks)
        self._ranks = ranks

    def begin_again(self) -> None:
        """With more calls a block: what was measured with fewer does not count."""
        self.blocks, self.found = PairedBlocks(self._precision), None
        if self.outside is not None:
            self.watch_outside(self._ranks)
        self._next_look = self._precision.least_pairs

    def goes_on(self, *, is_throttled: bool) -> bool:
        """Take a turn's times in; whether more are needed."""
        if self.problem is not None:
            return False
        if is_throttled and self.discarded < self._precision.least_pairs:
            self.discarded += len(self.rounds)  # A device that never runs freely is timed as it is.
            return True
        counted = [self.blocks.add(reference, candidate) for reference, candidate in zip(*self.turn, strict=True)]
        if not any(counted):
            self.spent_s = self._spent_before_s  # A disturbed turn takes nothing from those that count.
        if self.blocks.are_too_short:
            return False
        pairs, precision = len(self.measured[0]), self._precision
        if pairs < self._next_look:
            return True
        self._next_look = precision.next_look(pairs)
        found = estimate(*self.measured)
        if precision.ends(found, self._noise, pairs=pairs, spent_s=self.spent_s):
            self.found = found
        return self.found is None


def _at_most_us(blocks: Sequence[Block]) -> float:
    return statistics.median([block.call_at_most_us for block in blocks])


def _are_mostly_short(blocks: Sequence[Block]) -> bool:
    return 2 * sum(not block.is_measurement for block in blocks) >= len(blocks)
