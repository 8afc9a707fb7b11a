"""Times of baselines in the layout that KernelBench keeps its own in, and as a table.

::

    OUT/NVIDIA_H200/
      environment.json                                   versions, hardware, what was asked, what has no time
      times.jsonl                                        a line for each time as soon as it is known, for --resume
      baseline_time_torch.json                           {"level1": {"23_Softmax.py": {"mean": 1.2, ...}}}
      baseline_time_torch_compile_inductor_default.json

Times are milliseconds. Beyond the public fields an entry has its quantity, E beside K, and its precision. A problem
without a time is null, as the public files have it.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.baseline_times import FILES, BaselineTime
from opsmith.core.environment import Environment
from opsmith.core.problems import level_of, public_place
from opsmith.core.run import write_atomically, write_json
from opsmith.errors import BadInput
from opsmith.report.conventions import geometric_mean
from opsmith.report.levels import ALL


def hardware_folder(environment: Environment) -> str:
    """The device's name as the name of a folder: ``NVIDIA_H200``."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", environment.device_name).strip("_")


class BaselineFolder:
    """The folder of one hardware's times.

    Args:
        out: its parent; both are made.
        environment: where the times are taken.
        asked: what else they depend on: dtype, tf32, sizes and trials.

    Raises:
        BadInput: the folder cannot be written.
    """

    def __init__(self, out: Path, environment: Environment, asked: dict[str, Any]) -> None:
        self.path = out / hardware_folder(environment)
        self._environment = environment
        self._asked = asked
        with self._writing():
            self.path.mkdir(parents=True, exist_ok=True)

    @property
    def _lines(self) -> Path:
        return self.path / "times.jsonl"

    def known(self) -> list[BaselineTime]:
        """The times that an interrupted command left, all but those that went wrong.

        Raises:
            BadInput: they were taken on another machine, with other versions, or asked otherwise.
        """
        try:
            facts = msgspec.json.decode((self.path / "environment.json").read_bytes(), type=_Facts)
            lines = self._lines.read_bytes().splitlines(keepends=True)
        except (OSError, msgspec.MsgspecError):
            raise BadInput(f"{self.path} has no times to continue; leave out --resume") from None
        if (facts.environment, facts.asked) != (self._environment, self._asked):
            raise BadInput(f"{self.path} was asked otherwise, or elsewhere; leave out --resume or name another -o")
        found = [msgspec.json.decode(line, type=BaselineTime) for line in lines if line.endswith(b"\n")]
        return [time for time in found if time.times]

    def begin(self, known: Sequence[BaselineTime]) -> None:
        """Keep these times and no others."""
        with self._writing():
            write_json(self.path / "environment.json", _Facts(self._environment, self._asked))
            write_atomically(self._lines, b"".join(map(_line, known)))

    def add(self, time: BaselineTime) -> None:
        """Keep one more."""
        with self._writing(), self._lines.open("ab") as lines:
            lines.write(_line(time))

    def write(self, found: Sequence[BaselineTime]) -> None:
        """Write one file for each baseline that was asked, and what has no time.

        Args:
            found: every problem under every baseline.
        """
        problems = [{"problem": t.task, "baseline": t.baseline, "reason": t.problem} for t in found if t.problem]
        with self._writing():
            write_json(self.path / "environment.json", _Facts(self._environment, self._asked, problems))
            for baseline in dict.fromkeys(time.baseline for time in found):
                of_baseline = [time for time in found if time.baseline == baseline]
                levels = _levels(of_baseline, self._environment, dtype=self._asked["dtype"])
                write_json(self.path / FILES[baseline], levels)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise BadInput(f"{self.path} cannot be written: {exc.strerror}; name another -o") from exc


class _Facts(msgspec.Struct, frozen=True):
    """``environment.json``."""

    environment: Environment
    asked: dict[str, Any]
    without_time: list[dict[str, str]] = []


def _line(time: BaselineTime) -> bytes:
    return msgspec.json.encode(time) + b"\n"


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
