"""Intel's GPUs, through ``torch.xpu``."""

from __future__ import annotations

from pathlib import Path

from opsmith.devices.kind import NVIDIA_DSLS, DeviceKind

#: The files of GPUs, whosever they are.
DRI = Path("/dev/dri")


class Xpu(DeviceKind):
    """Intel's GPUs."""

    type = "xpu"
    label = "Intel GPU"
    visible_variable = "ZE_AFFINITY_MASK"
    kept_variables = ("ZE_FLAT_DEVICE_HIERARCHY", "ONEAPI_DEVICE_SELECTOR", "ONEAPI_ROOT", "CMPLR_ROOT")
    flush_bytes = 5 << 28  # 1.25 GiB: a Data Center GPU Max has 408 MB.
    foreign_dsls = NVIDIA_DSLS | {"tilelang", "pallas", "metal"}
    failures = ("UR_RESULT_ERROR_DEVICE_LOST", "ZE_RESULT_ERROR_DEVICE_LOST")

    def missing(self) -> str | None:
        """No GPU has a file."""
        return None if any(DRI.glob("renderD*")) else "no Intel GPU on this machine (/dev/dri has no renderD file)"
