"""The CPU."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.core.environment import cpu_name
from opsmith.devices.kind import ACCELERATOR_DSLS, UNKNOWN_CACHE_BYTES, DeviceKind

if TYPE_CHECKING:
    import torch

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


class Cpu(DeviceKind):
    """The processors of the host; Triton's interpreter runs kernels there."""

    type = "cpu"
    label = "CPU"
    tested = True
    # Triton reads it while it is imported; setting it later breaks tl.sum.
    variables = (("TRITON_INTERPRET", "1"),)
    survives_fork = True
    flush_bytes = 0
    counts_memory = False
    default_dsl = "cpp"
    foreign_dsls = ACCELERATOR_DSLS

    def name(self, device: torch.device) -> str:  # noqa: ARG002 - there is one
        """What the operating system calls the processor."""
        return cpu_name()

    def cache_bytes(self, device: torch.device) -> int:  # noqa: ARG002 - there is one
        """The last cache."""
        found: dict[int, int] = {}
        with contextlib.suppress(OSError, ValueError):
            for index in _CACHES.glob("index*"):
                level, size = ((index / name).read_text().strip() for name in ("level", "size"))
                found[int(level)] = int(size.removesuffix("K")) << 10
        return found[max(found)] if found else UNKNOWN_CACHE_BYTES

    def elapsed_ms(self, run: Callable[[], object], device: torch.device) -> float:  # noqa: ARG002 - as above
        """Milliseconds of a call by the host's clock."""
        before = time.perf_counter()
        run()
        return (time.perf_counter() - before) * 1e3

    def launch_nothing(self, device: torch.device) -> object:
        """Make no element."""
        import torch

        return torch.empty(0, device=device)
