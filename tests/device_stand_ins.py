"""What stands in for torch's modules for devices that are not there."""

from __future__ import annotations

#: Those that say which devices a process sees.
VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
#: What the stand-ins say of their devices.
GPU_BYTES, CACHE_BYTES = 48 << 30, 408 << 20


class Event:
    """An event of two milliseconds."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, _end: Event) -> float:
        return 2.0
