"""One zygote for the runs of several tests: starting it takes longer than judging the few kernels of most."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

import pytest

from opsmith.runner.judge import device_lane
from opsmith.runner.processes.children import Processes
from opsmith.runner.processes.starting import start_processes


@contextlib.contextmanager
def shared_processes(suite: str) -> Iterator[None]:
    """Within, every run and session of this process uses the same processes, started for ``suite`` on the CPU.

    Not for tests of how processes start and end, of their environment, or of their limits.
    """
    with start_processes("cpu", suite=suite) as processes, pytest.MonkeyPatch.context() as patch:
        processes.wait_ready()

        @contextlib.contextmanager
        def lent(_device: str, **_options: object) -> Iterator[Processes]:
            try:
                yield processes
            finally:
                shutil.rmtree(processes.scratch / "spool", ignore_errors=True)

        patch.setattr(device_lane, "start_processes", lent)
        yield
