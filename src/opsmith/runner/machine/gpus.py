"""The files of the GPUs that a judge was given, for workers that are to reach no other one.

``CUDA_VISIBLE_DEVICES`` is a wish: a kernel may start a process with another one. NVIDIA's driver finds every GPU whose
file it can open, and leaves out afterwards what is not visible.

``python -m opsmith.runner.machine.gpus FILE ...`` tries whether the driver starts with these files out of reach.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from opsmith.devices import kind_of
from opsmith.runner.sandbox.kernel_calls import forgo_privileges
from opsmith.runner.sandbox.landlock import EVERYTHING, READ_DIR, PathRule, limits_files, restrict

#: What isolates workers where this is possible, for the record.
OWN_DEVICES = "device files of its own GPU only"
#: What the driver says of each of its devices.
DRIVER = Path("/proc/driver/nvidia/gpus")
TRIAL_TIMEOUT_S = 30.0


class Device(NamedTuple):
    """What the driver says of one of its devices."""

    model: str
    file: str


def known_devices() -> dict[str, Device]:
    """All devices of the machine that the driver tells of, by their UUID."""
    found = {}
    for listed in DRIVER.glob("*/information"):
        lines = (line.partition(":") for line in listed.read_text().splitlines())
        told = {name.strip(): value.strip() for name, _, value in lines}
        if told.keys() >= {"GPU UUID", "Model", "Device Minor"}:
            found[told["GPU UUID"]] = Device(told["Model"], f"/dev/nvidia{told['Device Minor']}")
    return found


def first_device(device: str) -> str | None:
    """The one device that ``--device cuda`` is about, as ``CUDA_VISIBLE_DEVICES`` names it; of other kinds likewise.

    The driver opens every device that a process can see, for one process of the machine at a time. None where there is
    no choice: on the CPU, with one device, or with a number, as in ``cuda:1``, which counts those that are visible.
    """
    there = kind_of(device).visible() if ":" not in device else []
    return there[0] if len(there) > 1 else None


def files_of_others(visible: str | None) -> frozenset[str]:
    """The files of devices that are not visible.

    Args:
        visible: what ``CUDA_VISIBLE_DEVICES`` says. Only UUIDs say which devices are meant: the driver counts those
            that it can open.
    """
    names = {name.strip() for name in (visible or "").split(",")}
    known = known_devices()
    if not known.keys() >= names:
        return frozenset()
    return frozenset(device.file for uuid, device in known.items() if uuid not in names)


def can_do_without(files: Collection[str]) -> bool:
    """Whether workers can be kept from these files: there are rules for that, and the driver starts nevertheless."""
    if not files or not limits_files():
        return False
    command = [sys.executable, "-P", "-m", "opsmith.runner.machine.gpus", *files]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=TRIAL_TIMEOUT_S)  # noqa: S603 - our own
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def hide(files: Collection[str]) -> None:
    """Keep this process from these files of ``/dev``, and from nothing else that has a name by now."""
    forgo_privileges()
    folders = ("/", "/dev")
    listed = [entry for folder in folders for entry in Path(folder).iterdir()]
    # A link may lead to a pipe, which no rule can be about; what it leads to in a folder is allowed with that.
    entries = {str(entry) for entry in listed if not entry.is_symlink()} - {*folders, *files}
    restrict([*(PathRule(folder, READ_DIR) for folder in folders), *(PathRule(entry, EVERYTHING) for entry in entries)])


def main() -> int:
    """Status 0 if the driver has a device to use."""
    hide(sys.argv[1:])
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    return int(driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value < 1)


if __name__ == "__main__":
    sys.exit(main())
