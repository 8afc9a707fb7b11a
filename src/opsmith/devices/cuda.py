"""What torch calls ``cuda``: NVIDIA's GPUs, and AMD's where torch was built for ROCm."""

from __future__ import annotations

import importlib.util
import os
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.devices import nvml
from opsmith.devices.kind import NVIDIA_DSLS, DeviceKind

if TYPE_CHECKING:
    import torch

#: Where NVIDIA's driver says which one it is.
DRIVER = Path("/proc/driver/nvidia/version")
#: AMD's driver, and a folder for each processor that it serves: CPUs have no SIMD units.
KFD = Path("/dev/kfd")
KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")


class Cuda(DeviceKind):
    """NVIDIA's GPUs."""

    type = "cuda"
    label = "NVIDIA GPU"
    tested = True
    visible_variable = "CUDA_VISIBLE_DEVICES"
    nvidia_driver = True
    times_kernels = True
    runtime = ("libcudart", "cuda")
    flush_bytes = 160 << 20  # An H200 has 50 MB.
    foreign_dsls = frozenset()
    failures: tuple[str, ...] = ("CUDA error", "CUDA driver error")

    def visible(self) -> list[str]:
        """As ``CUDA_VISIBLE_DEVICES`` says, else as the driver lists them."""
        return super().visible() if "CUDA_VISIBLE_DEVICES" in os.environ else nvml.uuids()

    def missing(self) -> str | None:
        """No driver is loaded."""
        return None if DRIVER.exists() else "no NVIDIA driver on this machine"

    def identity(self, device: torch.device) -> str:
        """Its UUID, as the driver writes it."""
        return f"GPU-{self._module().get_device_properties(device).uuid}"

    def launch_nothing(self, device: torch.device) -> object:  # noqa: ARG002 - on the current stream
        """An empty kernel."""
        self._module()._sleep(0)
        return None

    def is_lost(self, error: BaseException, message: str) -> bool:  # noqa: ARG002 - its type tells
        """As torch says."""
        import torch

        return isinstance(error, torch.AcceleratorError)


class Rocm(Cuda):
    """AMD's GPUs, to which ``torch.cuda`` leads where torch was built for ROCm."""

    label = "AMD GPU (ROCm)"
    tested = False
    visible_variable = "HIP_VISIBLE_DEVICES"
    kept_variables = ("ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "ROCM_PATH", "HIP_PATH")
    nvidia_driver = False
    runtime = ("libamdhip64", "hip")
    flush_bytes = 1 << 30  # An MI300X has 256 MB.
    foreign_dsls = NVIDIA_DSLS
    failures = ("HIP error",)

    def visible(self) -> list[str]:
        """As HIP reads its variables, else the numbers of what the driver has."""
        for variable in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
            if variable in os.environ:
                return [name.strip() for name in os.environ[variable].split(",") if name.strip()]
        if "ROCR_VISIBLE_DEVICES" in os.environ:  # HIP counts what the layer below it lets through.
            return [str(number) for number, _ in enumerate(os.environ["ROCR_VISIBLE_DEVICES"].split(","))]
        found = [path for path in KFD_NODES.glob("*/properties") if "\nsimd_count 0\n" not in f"\n{path.read_text()}"]
        return [str(number) for number, _ in enumerate(found)]

    def missing(self) -> str | None:
        """No driver is loaded."""
        return None if KFD.exists() else "no AMD driver on this machine"


def cuda_or_rocm() -> Cuda:
    """What ``cuda`` means to the torch that is installed; torch is not imported."""
    return Rocm() if _hip_version() else Cuda()


def _hip_version() -> str | None:
    """``torch.version.hip``."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    version: str | None = runpy.run_path(str(Path(found.origin).with_name("version.py"))).get("hip")
    return version
