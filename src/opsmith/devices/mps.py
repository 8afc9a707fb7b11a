"""Apple's GPUs, through ``torch.mps``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from opsmith.devices.kind import ACCELERATOR_DSLS, UNKNOWN_CACHE_BYTES, DeviceKind

if TYPE_CHECKING:
    import torch


class Mps(DeviceKind):
    """The GPU of a Mac: there is one, it has no number, and its memory is the host's."""

    type = "mps"
    label = "Apple GPU"
    has_judge = False
    flush_bytes = 384 << 20  # An M2 Ultra has 96 MB.
    counts_memory = False  # What is in use, but not the most.
    default_dsl = "metal"
    foreign_dsls = ACCELERATOR_DSLS
    failures = ("command buffer exited with error status",)

    def missing(self) -> str | None:
        """The system is another one."""
        return None if sys.platform == "darwin" else "no Apple GPU: MPS is part of macOS"

    def name(self, device: torch.device) -> str:  # noqa: ARG002 - there is one
        """Torch does not say."""
        return self.label

    def identity(self, device: torch.device) -> str:
        """There is one."""
        return str(device)

    def total_bytes(self, device: torch.device) -> int:  # noqa: ARG002 - there is one
        """What Metal recommends to use at most."""
        return int(self._module().recommended_max_memory())

    def free_bytes(self, device: torch.device) -> int:
        """What this process has not taken of that."""
        return self.total_bytes(device) - int(self._module().driver_allocated_memory())

    def cache_bytes(self, device: torch.device) -> int:  # noqa: ARG002 - there is one
        """Torch does not say."""
        return UNKNOWN_CACHE_BYTES

    def random_state(self, device: torch.device) -> torch.Tensor:  # noqa: ARG002 - there is one
        """The state of its generator."""
        state: torch.Tensor = self._module().get_rng_state()
        return state
