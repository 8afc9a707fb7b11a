"""What both benchmarks of models write beside their figures: the command, and what the machine was."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import torch

from opsmith.core.environment import Environment
from opsmith.core.run import write_atomically
from opsmith.runner.machine.environment import describe_environment


def command_of(module: str) -> tuple[str, ...]:
    """The command line of this process, for somebody else's shell."""
    return ("python", "-m", module, *sys.argv[1:])


def environment_of(device: str) -> Environment:
    """The environment of this process, which has torch imported."""
    facts = {"torch": str(torch.__version__), "triton": _version("triton"), "cuda": torch.version.cuda}
    name = torch.cuda.get_device_name() if device.startswith("cuda") else ""
    return describe_environment(facts, device=device, device_name=name)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write(path: Path, record: msgspec.Struct) -> None:
    """Write a record as indented JSON."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
