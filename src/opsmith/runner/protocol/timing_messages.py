"""Messages about timed blocks: the judge sends them to a worker and, in the same turn, to the referee."""

from __future__ import annotations

import msgspec

from opsmith.core.fresh_values import Freshness, Variation
from opsmith.core.timing import Work

#: Far longer than a timed pair pauses between two messages.
SPIN_S = 0.02
#: Microseconds that a block should take: of K several hundred ticks of an event, of E far more than
#: the jitter of a round trip between processes, which is larger on a CPU that others use as well. With blocks of 300 us
#: E of many inputs got another label in the next run (benchmarks/results/clock/h100/labels-again).
BLOCK_US = {"K": 250.0, "E": 1_200.0}
BLOCK_US_CPU = 1_500.0


def spin_s(request: msgspec.Struct, *, shares_cores: bool = False) -> float:
    """How long to look for the message that follows on a request before sleeping until it comes.

    A process that has slept wakes up on a cold core, and its next calls take two or three times as long
    as they do in a loop. So whoever has renewed its inputs waits awake for the block, and within a turn for
    what comes next: waking up takes up to 0.1 ms. The other side of the pair sleeps: both run on the same core.

    Args:
        request: that was answered.
        shares_cores: others of its side, which are not as far yet, need the cores: ranks on a CPU sleep at once.
    """
    if shares_cores:
        return 0.0
    goes_on = isinstance(request, WarmUp) or (isinstance(request, RenewInputs | TimeBlock) and request.more)
    return SPIN_S if goes_on else 0.0


def waits_awake(device: str) -> bool:
    """Whether the judge looks for the reply to a block again and again, instead of sleeping until it comes.

    Waking up takes it up to 0.1 ms, a fifth of a block. On a CPU, whose blocks are longer, it would take a
    processor from what it times.
    """
    return not device.startswith("cpu")


def answer_spin_s(request: msgspec.Struct) -> float:
    """How long a judge that waits awake looks for the reply to a request."""
    return SPIN_S if isinstance(request, RenewInputs | WarmUp | TimeBlock) else 0.0


class PrepareTiming(msgspec.Struct, frozen=True, tag=True):
    """Get ready to make up to ``slots`` sets of a call's inputs, and run it on the first.

    Attributes:
        call: the serialized call.
        slots: sets of inputs; the referee may allow fewer.
        variations: of the worker, how each storage is made anew, as the referee has found; empty for the referee.
        pair: the number by which later requests name this call; 0 forgets all calls before.
        warm: as many sets as the device's cache holds, and nothing is put out of it.
        baseline: of the referee, what answers in eager's place; see :mod:`opsmith.evaluation.timing.baselines`.
    """

    call: bytes
    slots: int
    variations: tuple[Variation, ...] = ()
    pair: int = 0
    warm: bool = False
    baseline: str = "eager"


class MakeReady(msgspec.Struct, frozen=True, tag=True):
    """Do what blocks need and should not wait for; answered with a :class:`BlockTimed`, which says what was captured.

    Attributes:
        pair: which call.
        calls: so many sets of inputs.
        captured: capture a CUDA graph of so many calls, if they can be.
    """

    pair: int
    calls: int
    captured: int | None = None


class Renewal(msgspec.Struct, frozen=True, array_like=True):
    """The values of a round, for the first ``sets`` sets of one call's inputs.

    Attributes:
        round: the key of its values, which nobody can know before.
        sets: so many.
        pair: which call.
    """

    round: int
    sets: int
    pair: int = 0


class RenewInputs(msgspec.Struct, frozen=True, tag=True):
    """Write fresh values into sets of inputs, of one call or of several; answered with a :class:`BlockTimed`.

    Attributes:
        renewals: one for each call.
        more: another request of the same turn follows at once.
    """

    renewals: tuple[Renewal, ...]
    more: bool = True


class Warming(msgspec.Struct, frozen=True, array_like=True):
    """Calls before a block of E.

    Attributes:
        pair: which call.
        sets: of inputs that the block and these calls have.
        calls: so many, on the last of these sets.
    """

    pair: int
    sets: int
    calls: int


class WarmUp(msgspec.Struct, frozen=True, tag=True):
    """Get ready for a block of E of each call; answered with a :class:`BlockTimed`."""

    warmings: tuple[Warming, ...]


class TimeBlock(msgspec.Struct, frozen=True, tag=True):
    """Run ``calls`` calls, each on inputs of its own, and answer when they have finished.

    Attributes:
        calls: so many.
        quantity: ``K`` or ``E``.
        pair: which call.
        round: of K, write this round's values first; None leaves what is there.
        replays: of K, run the same calls so often, which is for the judge's own clock.
        steady: of K, take as long over everything else as in the last such block, for the judge's own clock.
        captured: of K, try a CUDA graph.
        more: another request of the same turn follows at once.
    """

    calls: int
    quantity: str
    pair: int = 0
    round: int | None = None
    replays: int = 1
    steady: bool = False
    captured: bool = True
    more: bool = False


class ShowTimed(msgspec.Struct, frozen=True, tag=True):
    """Show what the last block's call on one set of inputs returned; chosen when the block was over.

    Attributes:
        slot: which set.
        in_full: the outcome itself, even where a summary would do.
        pair: which call.
    """

    slot: int
    in_full: bool
    pair: int = 0


class TimingPrepared(msgspec.Struct, frozen=True, tag=True):
    """The inputs are there, and a call has run.

    Attributes:
        slots: sets of inputs; the worker makes as many as the referee says.
        variations: how each storage is made anew; the worker does as the referee says.
        first_call_s: seconds of the first call, compiling and tuning included.
        peak_bytes: device memory of torch's that a further call took at most; None where nothing counts it.
        work: of the referee, what the call has to do; None where that is not known.
        values: of the referee, how much of the call's values is made anew.
    """

    slots: int
    variations: tuple[Variation, ...]
    first_call_s: float
    peak_bytes: int | None = None
    work: Work | None = None
    values: Freshness | None = None


class BlockTimed(msgspec.Struct, frozen=True, tag=True):
    """A block has finished, or inputs are renewed.

    ``own_us`` is what the process itself has seen, in microseconds a call: K by its device's events, None
    where they cannot tell it from the host's time. Of an E block nobody relies on it: that is read from
    the judge's clock.
    ``nodes`` says how many nodes of a CUDA graph a call takes, or is None where none was captured.
    """

    own_us: float | None
    nodes: float | None = None


class GiveMemoryBack(msgspec.Struct, frozen=True, tag=True):
    """Give the device what is kept for the next case: a case by itself needs it. Nothing is held after that."""


class MemoryGivenBack(msgspec.Struct, frozen=True, tag=True):
    """It is done."""
