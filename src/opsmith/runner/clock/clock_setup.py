"""Setting up the clock of a run: what the device reaches, what the machine's own noise is.

The noise is measured: eager in the referee against eager in a second process, which are equal, or collectives of
torch's on ranks against the same on other ranks. What they differ by comes from where memory lies, from other work on
the machine and from the clock itself, and no kernel is called faster or slower for less.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from opsmith.core.case import CallRecord, GeneratedStorage, SequenceValue, TensorValue, Value
from opsmith.core.domains import Normal
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import GROUP, OpSchema, TaskKind, Variant
from opsmith.core.seeds import derive_seed
from opsmith.core.timing import Clock, ControlPair, Timing
from opsmith.errors import ProcessLost
from opsmith.evaluation.timing.statistics import precisions_of
from opsmith.runner.clock.stopwatch import ClockSettings, PairedClock, empty_trip_us
from opsmith.runner.clock.timed_pairs import TooShort
from opsmith.runner.clock.timed_processes import RefereeSide
from opsmith.runner.clock.timed_ranks import RanksSide, ReferenceRanks
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.rank_group import RankGroup
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.referee_messages import ClockSetUp, SetUpClock


class ControlCall(NamedTuple):
    """An op and the shapes of its float32 arguments."""

    op: str
    shapes: tuple[tuple[int, ...], ...]
    rest: tuple[int | bool, ...] = ()

    def __str__(self) -> str:
        return f"{self.op} {' '.join('x'.join(map(str, shape)) for shape in self.shapes)}"

    def serialized(self) -> bytes:
        """The call on values of its own."""
        tensors = tuple(
            [TensorValue(number, "f32", shape, _strides(shape), 0, "") for number, shape in enumerate(self.shapes)]
        )
        storages = tuple([_storage(tensor, seed) for seed, tensor in enumerate(tensors)])
        return msgspec.msgpack.encode(CallRecord(op=self.op, args=(*tensors, *self.rest), kwargs={}, storages=storages))


#: Calls from mere overhead to what leaves every cache.
CONTROL = (
    ControlCall("add.Tensor", ((8,), (8,))),
    ControlCall("mul.Tensor", ((1 << 14,), (1 << 14,))),
    ControlCall("_softmax.default", ((256, 512),), (-1, False)),
    ControlCall("mm.default", ((192, 192), (192, 192))),
    ControlCall("relu.default", ((1 << 20,),)),
    ControlCall("add.Tensor", ((1 << 22,), (1 << 22,))),
)


class ControlCollective(NamedTuple):
    """The sum of so many float32 elements of each rank."""

    elements: int

    def __str__(self) -> str:
        return f"{ALL_REDUCE} {self.elements}"

    def serialized(self, ranks: int) -> bytes:
        """What so many ranks do, each on values of its own: one call, which is waited for at once."""
        shape = (self.elements,)
        tensors = [TensorValue(rank, "f32", shape, (1,), 0, "") for rank in range(ranks)]
        programs = [
            SequenceValue((_items(SequenceValue((own, "sum", GROUP), is_tuple=True)), _items(0), _items()), True)
            for own in tensors
        ]
        storages = tuple([_storage(tensor, seed) for seed, tensor in enumerate(tensors)])
        return msgspec.msgpack.encode(CallRecord(op=ALL_REDUCE, args=tuple(programs), kwargs={}, storages=storages))


ALL_REDUCE = "all_reduce.default"
#: Collectives from mere messages to what takes longer to add up than to announce.
CONTROL_OF_RANKS = (ControlCollective(8), ControlCollective(1 << 14), ControlCollective(1 << 18))
#: What ranks are taken to differ by where none of these could be measured: no less than twice as fast is claimed.
UNKNOWN_NOISE = 1.0


#: Makes a group of ranks, of which none has been started.
MakeRanks = Callable[[], RankGroup]


def set_up_clock(
    referee: RefereeLink,
    control: RefereeLink,
    settings: ClockSettings,
    *,
    folder: str,
    seed: int,
    throttling: str | None,
) -> Clock:
    """Measure the device, then the noise.

    Args:
        referee: of the slot that times.
        control: a second one, which is the other side of the control pairs.
        settings: of the run; the noise in it is not looked at.
        folder: of the ceilings that were measured before.
        seed: of the run.
        throttling: how a throttled clock is noticed.
    """
    measured = referee.ask(SetUpClock(folder), ClockSetUp)
    assert isinstance(measured, ClockSetUp)
    graphs = measured.graphs
    quick = msgspec.structs.replace(_for_control(settings), graphs=graphs)
    pairs = tuple(
        _control_pairs(
            PairedClock(
                RefereeSide(referee),
                RefereeSide(control),
                [call.serialized() for call in CONTROL],
                settings=quick,
                seed=derive_seed(seed, "control"),
                look=_nothing_to_look_for,
            ),
            CONTROL,
        )
    )
    return Clock(
        control=pairs,
        noise={
            quantity: noise_of([pair for pair in pairs if pair.quantity == quantity])
            for quantity in settings.quantities
        },
        trip_us=empty_trip_us(RefereeSide(referee)),
        node_us=None if graphs is None else graphs.node_us,
        graph_us=None if graphs is None else graphs.graph_us,
        ceilings=measured.ceilings,
        throttling=throttling,
    )


def set_up_clock_of_ranks(
    referee: RefereeLink,
    make: MakeRanks,
    settings: ClockSettings,
    *,
    worlds: Sequence[int],
    folder: str,
    seed: int,
    before: Clock | None,
) -> Clock:
    """Measure the noise of ranks, in groups of these sizes; the first time what the device reaches, too.

    Args:
        referee: of the slot that times.
        make: makes either side of the control pairs.
        settings: of the run; the noise in it is not looked at.
        worlds: numbers of ranks.
        folder: of the ceilings that were measured before.
        seed: of the run.
        before: the clock as it was set up for other numbers of ranks.

    Raises:
        ProcessLost: a rank failed, which runs nobody's code but torch's and opsmith's.
    """
    clock = before
    if clock is None:
        measured = referee.ask(SetUpClock(folder), ClockSetUp)
        assert isinstance(measured, ClockSetUp)
        clock = Clock(control=(), noise={}, trip_us=0.0, ceilings=measured.ceilings)
    for ranks in worlds:
        pairs, trip_us = _control_pairs_of_ranks(referee, make, ranks, _for_control(settings), seed)
        noise = {**clock.noise_of_ranks, ranks: noise_of(pairs) if pairs else UNKNOWN_NOISE}
        clock = msgspec.structs.replace(
            clock,
            control=(*clock.control, *pairs),
            noise={"E": max(noise.values())},
            noise_of_ranks=noise,
            trip_us=max(clock.trip_us, trip_us),
        )
    return clock


def noise_of(pairs: Sequence[ControlPair]) -> float:
    """Twice what equal sides differed by in the median, as a share."""
    return 2 * statistics.median([math.expm1(abs(math.log(pair.speedup))) for pair in pairs])


def _for_control(settings: ClockSettings) -> ClockSettings:
    return msgspec.structs.replace(
        settings, precisions=precisions_of("quick", settings.quantities), noise={}, baseline="eager"
    )


def _control_pairs(clock: PairedClock, calls: Sequence[ControlCall | ControlCollective]) -> Iterator[ControlPair]:
    clock.prepare()
    for quantity in clock.settings.quantities:
        for call, timing in zip(calls, clock.time(quantity), strict=True):
            if isinstance(timing, TooShort):
                continue  # It says nothing of the noise.
            if not isinstance(timing, Timing):
                raise timing
            yield ControlPair(
                call=str(call),
                quantity=quantity,
                time_us=timing.reference_us,
                speedup=timing.speedup,
                low=timing.low,
                high=timing.high,
                ranks=clock.settings.ranks,
            )


def _control_pairs_of_ranks(
    referee: RefereeLink, make: MakeRanks, ranks: int, settings: ClockSettings, seed: int
) -> tuple[list[ControlPair], float]:
    """Two groups that do the same, and an empty round trip to all ranks of one, in microseconds."""
    schema = OpSchema(name=ALL_REDUCE, schema="", variant=Variant.FUNCTIONAL, kind=TaskKind.COLLECTIVE)
    kernel = Kernel(task=ALL_REDUCE, backend="aten", loader=Loader.ATEN, entry=ALL_REDUCE, dsl="aten")
    groups = make(), make()
    try:
        for group in groups:
            group.resize(ranks)
            problem = group.load(kernel, None, schema)
            if problem is not None:
                raise ProcessLost(f"torch's own collective does not load: {problem.message}")
        reference, other = ReferenceRanks(groups[0], referee), RanksSide(groups[1], trusted=True)
        clock = PairedClock(
            reference,
            other,
            [call.serialized(ranks) for call in CONTROL_OF_RANKS],
            settings=msgspec.structs.replace(settings, ranks=ranks),
            seed=derive_seed(seed, "control", ranks),
            look=_nothing_to_look_for,
        )
        return list(_control_pairs(clock, CONTROL_OF_RANKS)), empty_trip_us(reference)
    except WorkerFailed as failure:
        raise ProcessLost(f"while the noise of ranks was measured: {failure}") from failure
    finally:
        for group in groups:
            group.close()


def _nothing_to_look_for(_places: object) -> None:
    """Both sides are opsmith's own."""


def _items(*values: Value) -> SequenceValue:
    return SequenceValue(values, is_tuple=False)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major ones, without torch: this runs in the judge."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _storage(tensor: TensorValue, seed: int) -> GeneratedStorage:
    return GeneratedStorage(
        size_bytes=4 * math.prod(tensor.shape),
        dtype="f32",
        shape=tensor.shape,
        strides=tensor.strides,
        offset=0,
        domain=Normal(),
        seed=seed,
    )
