"""Measuring the inputs of a dataset on a device: eager in a process that may die, one input at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from opsmith.core.seeds import derive_seed
from opsmith.errors import BadInput, RefereeFailed
from opsmith.runner.processes.children import Processes
from opsmith.runner.processes.failures import RefereeDied
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.referee_messages import DeviceOpened, Measure, Measured, OpenDevice
from opsmith.traces.measurements import Input, Measurement


class EagerMeasurer:
    """Times eager on each input; a :class:`~opsmith.traces.measurements.Measurer`.

    Values follow from the input alone, so that a second measurement asks the same.

    Args:
        referee: runs eager; it is replaced when an input kills it, which is that input's problem.
        device: the device's name, for the records.
    """

    def __init__(self, referee: RefereeLink, device: str) -> None:
        self.device = device
        self._referee = referee

    def __call__(self, inputs: Sequence[Input], /) -> Iterator[Measurement]:
        for uuid, call in inputs:
            try:
                measured = self._referee.ask(Measure(call, derive_seed("measure", uuid)), Measured)
            except (RefereeDied, RefereeFailed) as death:
                problem = " ".join(str(death).partition("\n")[0].split())
                yield Measurement(uuid=uuid, device=self.device, problem=problem)
                continue
            ran = measured.problem is None
            yield Measurement(
                uuid=uuid,
                device=self.device,
                runtime_ms=measured.runtime_ms,
                launch_ms=measured.launch_ms if ran else None,
                problem=measured.problem,
            )


@contextlib.contextmanager
def eager_measurer(processes: Processes, device: str, *, builds: Path) -> Iterator[EagerMeasurer]:
    """A measurer on ``device``, a torch device string.

    Args:
        builds: parent folder of the build caches.

    Raises:
        BadInput: the device cannot be used.
    """
    processes.wait_ready()
    referee = RefereeLink(processes, processes.scratch, device=device, builds=builds, threads=1, limits=Limits())
    try:
        opened = referee.ask(OpenDevice(), DeviceOpened)
        if opened.problem is not None:
            raise BadInput(f"device {device} cannot be used: {opened.problem}")
        yield EagerMeasurer(referee, opened.name)
    finally:
        referee.close()
