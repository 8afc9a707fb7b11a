"""``opsmith doctor``: what this machine can do."""

from __future__ import annotations

import os
import shutil

import msgspec
from rich.console import Console
from rich.table import Table

from opsmith import plugins
from opsmith.cli import selection
from opsmith.cli.document import Json, print_json
from opsmith.core.cache import cache_folder
from opsmith.devices import DeviceKind, kind_of, names
from opsmith.runner.machine.environment import describe_environment
from opsmith.runner.processes.starting import start_processes

EPILOG = """
Examples:

  opsmith doctor

  opsmith doctor --device cuda --json
"""


def doctor(
    device: selection.Device = "",
    json_output: Json = False,
) -> int:
    """Show versions, hardware, plug-ins, isolation layers and what is missing.

    Exit status 1 if something that judging needs is missing.
    """
    device = selection.parse_device(device)
    with start_processes(device) as processes:
        processes.wait_ready()
        facts = processes.facts
    environment = describe_environment(facts, device=device, device_name=device)
    problems = _problems(device, str(facts["triton"] or ""))
    found = {
        "environment": msgspec.to_builtins(environment),
        "backends": [*plugins.names(plugins.BACKENDS), *plugins.names(plugins.KERNELS)],
        "suites": plugins.names(plugins.SUITES),
        "devices": [_described(kind_of(name)) for name in names()],
        "sandbox": list(processes.sandbox),
        "sandbox_missing": processes.sandbox_missing,
        "cache": str(cache_folder()),
        "problems": problems,
    }
    if json_output:
        print_json(found)
    else:
        _print(found)
    return 1 if problems else 0


def _described(kind: DeviceKind) -> str:
    return f"{kind.type}: {kind.label}{'' if kind.tested else ' (untested)'}"


def _problems(device: str, triton: str) -> list[str]:
    problems = []
    if not triton:
        problems.append("triton is not installed: Triton kernels cannot be judged; run: pip install triton")
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        problems.append("no C++ compiler: C++ kernels and Inductor cannot be judged; install g++ or set CXX")
    missing = kind_of(device).missing()
    if missing is not None:
        problems.append(f"device {device}: {missing}; use --device cpu")
    return problems


def _print(found: dict[str, object]) -> None:
    console = Console()
    for title, content in found.items():
        table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
        if isinstance(content, dict):
            for name, value in (content or {"none": ""}).items():
                table.add_row(name, "-" if value is None else str(value))
        elif isinstance(content, list):
            for item in content or ["none"]:
                table.add_row(str(item))
        else:
            table.add_row(str(content))
        console.print(table)
        console.print()
