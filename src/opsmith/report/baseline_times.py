"""Times of baselines in the layout that KernelBench keeps its own in, and as a table.

::

    OUT/NVIDIA_H200/
      environment.json                                   versions, hardware, what was asked, what has no time
      baseline_time_torch.json                           {"level1": {"23_Softmax.py": {"mean": 1.2, ...}}}
      baseline_time_torch_compile_inductor_default.json

Times are milliseconds. Beyond the public fields an entry has its quantity, E beside K, and its precision. A problem
without a time is null, as the public files have it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.baseline_times import FILES, BaselineTime
from opsmith.core.environment import Environment
from opsmith.core.problems import level_of, public_place
from opsmith.core.run import write_json
from opsmith.errors import BadInput
from opsmith.report.conventions import geometric_mean
from opsmith.report.levels import ALL


def hardware_folder(environment: Environment) -> str:
    """The device's name as the name of a folder: ``NVIDIA_H200``."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", environment.device_name).strip("_")


def write_baseline_times(
    out: Path, found: Sequence[BaselineTime], environment: Environment, *, asked: dict[str, Any]
) -> Path:
    """Write one file for each baseline that was asked, and what they depend on; the folder that they are in.

    Args:
        out: parent of the hardware's folder.
        found: every problem under every baseline.
        environment: where it ran.
        asked: what else the times depend on: dtype, tf32, sizes and trials.

    Raises:
        BadInput: the folder cannot be written.
    """
    folder = out / hardware_folder(environment)
    problems = [{"problem": t.task, "baseline": t.baseline, "reason": t.problem} for t in found if t.problem]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(
            folder / "environment.json",
            {"environment": environment, "asked": asked, "without_time": problems},
        )
        for baseline in dict.fromkeys(time.baseline for time in found):
            of_baseline = [time for time in found if time.baseline == baseline]
            write_json(folder / FILES[baseline], _levels(of_baseline, environment, dtype=asked["dtype"]))
    except OSError as exc:
        raise BadInput(f"{folder} cannot be written: {exc.strerror}; name another -o") from exc
    return folder


def _levels(found: Iterable[BaselineTime], environment: Environment, *, dtype: str) -> dict[str, dict[str, Any]]:
    levels: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for time in found:
        level, name = public_place(time.task)
        levels[level][name] = _entry(time, environment, dtype) if time.times else None
    return levels


def _entry(time: BaselineTime, environment: Environment, dtype: str) -> dict[str, Any]:
    entry = msgspec.structs.asdict(time.times[time.quantity])
    entry |= {"hardware": environment.device_name, "device": environment.device}
    entry |= {"quantity": time.quantity, "dtype": dtype}
    entry |= {"tf32_matmul": time.tf32_matmul, "tf32_cudnn": time.tf32_cudnn}
    return entry if time.quantity == "E" else entry | {"E": time.times["E"]}


def speedups_by_level(found: Sequence[BaselineTime]) -> dict[str, dict[str, tuple[float, int]]]:
    """Level -> baseline -> geometric mean of eager's time over its own, and of how many problems; ``all`` comes last.

    Only times of one quantity are compared.
    """
    eager = {time.task: time for time in found if time.baseline == "eager" and time.times}
    ratios: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    everything: defaultdict[str, list[float]] = defaultdict(list)
    for time in found:
        reference = eager.get(time.task)
        if time.times and reference is not None and reference.quantity == time.quantity:
            ratio = reference.times[time.quantity].mean / time.times[time.quantity].mean
            ratios[level_of(time.task)][time.baseline].append(ratio)
            everything[time.baseline].append(ratio)
    levels = {**ratios, ALL: everything} if everything else {}
    return {
        level: {baseline: (geometric_mean(each), len(each)) for baseline, each in of_level.items()}
        for level, of_level in levels.items()
    }
