"""Setting up the clock of a run: what the device reaches, what the machine's own noise is.

The noise is measured: eager in the referee against eager in a second process, which are equal. What
they differ by comes from where memory lies, from other work on the machine and from the clock
itself, and no kernel is called faster or slower for less.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from opsmith.core.case import CallRecord, GeneratedStorage, TensorValue
from opsmith.core.domains import Normal
from opsmith.core.seeds import derive_seed
from opsmith.core.timing import Clock, ControlPair, Timing
from opsmith.evaluation.timing.statistics import precisions_of
from opsmith.runner.clock.stopwatch import ClockSettings, PairedClock, empty_trip_us
from opsmith.runner.clock.timed_pairs import TooShort
from opsmith.runner.clock.timed_processes import RefereeSide
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
    quick = msgspec.structs.replace(
        settings,
        precisions=precisions_of("quick", settings.quantities),
        noise={},
        baseline="eager",
        graphs=graphs,
    )
    pairs = tuple(_control_pairs(referee, control, quick, seed))
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


def noise_of(pairs: Sequence[ControlPair]) -> float:
    """Twice what equal sides differed by in the median, as a share."""
    return 2 * statistics.median([math.expm1(abs(math.log(pair.speedup))) for pair in pairs])


def _control_pairs(
    referee: RefereeLink, control: RefereeLink, settings: ClockSettings, seed: int
) -> Iterator[ControlPair]:
    clock = PairedClock(
        RefereeSide(referee),
        RefereeSide(control),
        [call.serialized() for call in CONTROL],
        settings=settings,
        seed=derive_seed(seed, "control"),
        look=_nothing_to_look_for,
    )
    clock.prepare()
    for quantity in settings.quantities:
        for call, timing in zip(CONTROL, clock.time(quantity), strict=True):
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
            )


def _nothing_to_look_for(_places: object) -> None:
    """Both sides are opsmith's own."""


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
