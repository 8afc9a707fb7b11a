"""What the clock finds: one timed pair, what the device allows, and how well the machine keeps time."""

from __future__ import annotations

import enum

import msgspec


class Label(enum.StrEnum):
    """What a timed pair shows.

    FASTER and SLOWER are claims: the interval excludes 1 and the effect exceeds both the mode's least
    one and what two equal sides differ by on this machine. SAME says that the interval lies within the
    mode's bound (:mod:`opsmith.evaluation.timing.statistics`).
    """

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNDECIDED = "UNDECIDED"


class Cause(enum.StrEnum):
    """Why there is no time of a quantity.

    TOO_SHORT: with all the calls that a block may have, it is too short beside what is taken off it. BEYOND_DEVICE: the
    reference itself is faster than the device can be, so it is the clock that is wrong, on both sides. CUT_OFF: the
    time for judging the kernel was over before all of its cases were timed.
    """

    TOO_SHORT = "TOO_SHORT"
    BEYOND_DEVICE = "BEYOND_DEVICE"
    CUT_OFF = "CUT_OFF"


class Undecided(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity that was timed, and of which nothing can be said: it has no time, no speedup and no percentage.

    It counts as :attr:`Label.UNDECIDED`.

    Attributes:
        quantity: ``K`` or ``E``.
        cause: why.
        reason: the same with figures, in one line.
    """

    quantity: str
    cause: Cause
    reason: str


class RankSpread(msgspec.Struct, frozen=True):
    """How much earlier than the last rank others were done, by the judge's clock.

    Attributes:
        first_us: the first one, microseconds.
        median_us: the one in the middle; of an even number the mean of two.
    """

    first_us: float
    median_us: float


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Paired timing of reference and candidate on one case.

    Attributes:
        reference_us: median time of one reference call, microseconds.
        candidate_us: median time of one candidate call, microseconds.
        speedup: exp of the median per-block log ratio, reference over candidate.
        low: lower end of the bootstrap interval on ``speedup``.
        high: upper end.
        confidence: coverage of that interval, 0.99 for 99 %.
        blocks: number of paired blocks that count.
        calls_per_block: calls between two clock reads.
        quantity: ``K`` (kernel time on the device) or ``E`` (one call as a caller pays for it).
        label: what that shows.
        noise: what two equal sides may differ by on this machine, as a share: 0.01 for 1 %.
        processes: how often it was timed anew: on a CPU in fresh pairs of processes, on a device at other times.
        discarded: further pairs that do not count, because the device's clock was throttled.
        too_short: further pairs that do not count, because one of their blocks was too short to be a measurement.
        disturbed: further pairs that do not count, because others had the processor for a part of one of their blocks.
        disturbed_share: the share of the time of all blocks that was discarded with them.
        outside_us: of E on a CPU, what the candidate computed outside of its blocks, more than the reference did;
            microseconds a call, and part of ``candidate_us``.
        node_us: of K from a CUDA graph, what an empty node of it costs; None where no graph was captured.
        reference_nodes: nodes of the graph that one reference call takes; None without a graph.
        candidate_nodes: the same of the candidate.
        percent_of_floor: least time that this device needs for the work, over the candidate's time, times
            100; None: not known for this op or device.
        suspect: faster than this device was ever measured to be, though not than it can be; its results
            were verified again.
        reference_spread: at the end of the reference's blocks, in the median; None of one process.
        candidate_spread: the same of the candidate's.
    """

    reference_us: float
    candidate_us: float
    speedup: float
    low: float
    high: float
    confidence: float
    blocks: int
    calls_per_block: int
    quantity: str
    label: Label
    noise: float
    processes: int = 1
    discarded: int = 0
    too_short: int = 0
    disturbed: int = 0
    disturbed_share: float = 0.0
    outside_us: float = 0.0
    node_us: float | None = None
    reference_nodes: float | None = None
    candidate_nodes: float | None = None
    percent_of_floor: float | None = None
    suspect: bool = False
    reference_spread: RankSpread | None = None
    candidate_spread: RankSpread | None = None


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one call has to do, from its arguments and results alone.

    Attributes:
        least_bytes: no implementation whatever moves fewer: unique bytes that must be read, whatever the
            values are, plus unique bytes that must be written.
        traffic_bytes: what a good implementation moves: every unique byte of arguments and results once.
        matmul_flops: multiplications and additions of a dense matrix product; 0 for anything else.
        matmul_dtype: short name of its operands' dtype; None without one.
    """

    least_bytes: int
    traffic_bytes: int
    matmul_flops: int = 0
    matmul_dtype: str | None = None


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """What one device was measured to reach; what ``percent_of_floor`` is a percentage of.

    Attributes:
        device: its name.
        copy_gbps: bytes read plus bytes written in a second by a large copy, 1e9.
        matmul_tflops: by short dtype name the rate of a large dense product, 1e12 a second.
        l2_bytes: of the device's last cache.
        measured_utc: ISO 8601 time.
        torch: version that it was measured with.
    """

    device: str
    copy_gbps: float
    matmul_tflops: dict[str, float]
    l2_bytes: int
    measured_utc: str
    torch: str


class ControlPair(msgspec.Struct, frozen=True, kw_only=True):
    """Eager timed against eager in another process: they are equal, so what differs is noise.

    Attributes:
        call: what was timed.
        quantity: ``K`` or ``E``.
        time_us: of one call.
        speedup: 1 if the machine kept perfect time.
        low: lower end of its interval.
        high: upper end.
        ranks: processes of each side, if they are ranks.
    """

    call: str
    quantity: str
    time_us: float
    speedup: float
    low: float
    high: float
    ranks: int | None = None


class GraphCosts(msgspec.Struct, frozen=True):
    """What CUDA graphs cost besides what their kernels do, in microseconds.

    Attributes:
        node_us: an empty node.
        graph_us: a graph, between an event before it and one after it, without its nodes.
    """

    node_us: float
    graph_us: float


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """How a run's clock was set up, for ``run.json``.

    Attributes:
        control: eager against eager, before the first pair.
        noise: by quantity, twice what two equal sides differed by in the median, as a share; of ranks the largest.
        trip_us: an empty round trip between judge and process; what one takes just then is taken off every E block,
            and nothing else is.
        node_us: an empty node of a CUDA graph; None off CUDA.
        graph_us: a CUDA graph besides its nodes, taken off every K block that is one; None off CUDA.
        ceilings: what the device was measured to reach.
        throttling: how a throttled clock is noticed; None if it cannot be.
        noise_of_ranks: of E of so many ranks, the same; empty where no ranks were timed.
    """

    control: tuple[ControlPair, ...]
    noise: dict[str, float]
    trip_us: float
    node_us: float | None = None
    graph_us: float | None = None
    ceilings: Ceilings
    throttling: str | None = None
    noise_of_ranks: dict[int, float] = {}

    @property
    def graphs(self) -> GraphCosts | None:
        """Both costs of CUDA graphs together."""
        return None if self.node_us is None or self.graph_us is None else GraphCosts(self.node_us, self.graph_us)
