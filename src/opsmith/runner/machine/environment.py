"""What a run depends on besides the code: read from the machine, without touching torch."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import opsmith
from opsmith.core.environment import Environment, cpu_name
from opsmith.devices import kind_of, nvml

#: Memory of an idle worker with a CUDA context: 419 MiB on an H200 with the small stack (617 without),
#: 120 MiB on its host.
WORKER_DEVICE_GIB = 0.45
WORKER_HOST_GIB = 0.15
#: Of the memory that is free when a run starts; the rest is for the cases, and for the referees.
WORKER_SHARE = 0.4


def describe_environment(facts: dict[str, Any], *, device: str, device_name: str) -> Environment:
    """Collect the environment.

    Args:
        facts: what the zygote reported about the packages that it imported.
        device: torch device string of the run.
        device_name: the device's name as a referee reported it.
    """
    return Environment(
        opsmith=opsmith.__version__,
        python=platform.python_version(),
        torch=facts["torch"],
        triton=facts["triton"],
        platform=platform.platform(),
        cpu=cpu_name(),
        cpu_count=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        device=device,
        device_name=cpu_name() if device.startswith("cpu") else device_name,
        driver=nvml.driver_version(),
        cuda=facts["cuda"],
        compiler=_first_line(os.environ.get("CXX", "g++"), "--version"),
        git_commit=_git_commit(),
    )


def workers_that_fit(device: str, visible: str | None, sharers: int = 1) -> int:
    """How many idle workers with a CUDA context device and host can hold beside the cases; 0 where nobody knows.

    Args:
        device: torch device string.
        visible: the devices that workers see, as ``CUDA_VISIBLE_DEVICES`` names them; theirs is the first.
        sharers: so many lanes, each with a device of its own, divide the host's memory.
    """
    if not kind_of(device).nvidia_driver:
        return 0
    first = (visible or "").partition(",")[0]
    memory = nvml.memory_of(first if first and not first.startswith("MIG") else "0")
    device_gib = memory.free_bytes / 2**30 if memory else 0.0
    host_gib = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30 / sharers
    return int(WORKER_SHARE * min(device_gib / WORKER_DEVICE_GIB, host_gib / WORKER_HOST_GIB))


def device_memory(device: str, visible: str | None) -> tuple[str, int] | None:
    """What tells a CUDA device from others on this machine, and its memory in bytes; None where nothing says so.

    Args:
        device: torch device string; a number counts those that are visible.
        visible: the devices that processes see, as ``CUDA_VISIBLE_DEVICES`` names them.
    """
    if not kind_of(device).nvidia_driver:
        return None
    names = [name.strip() for name in (visible or "").split(",") if name.strip()]
    number = int(device.partition(":")[2] or 0)
    if len(names) <= number and names:
        return None
    name = names[number] if names else str(number)
    if name.startswith("MIG"):
        return None
    memory = nvml.memory_of(name)
    return (memory.uuid, memory.total_bytes) if memory else None


def _first_line(*command: str) -> str | None:
    """The first line that a program prints, or None if it is absent, fails or prints nothing."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)  # noqa: S603
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else None


def _git_commit() -> str | None:
    """The commit of the checkout that opsmith is imported from, with a + where it has changes."""
    folder = str(Path(opsmith.__file__).parent)
    commit = _first_line("git", "-C", folder, "rev-parse", "--short=12", "HEAD")
    if commit is None:
        return None
    return f"{commit}+" if _first_line("git", "-C", folder, "status", "--porcelain", "--", folder) else commit
