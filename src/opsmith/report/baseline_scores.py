"""Scores of module problems against a file of baseline times, as ``opsmith baseline`` and KernelBench write them.

The solution's time is the geometric mean over its timed cases, the baseline's the mean of the file. They were not
measured in pairs, so a difference of the machines' state is in every speedup: the run's own scores have none of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opsmith.core.problems import public_place, split_sample
from opsmith.core.run import LevelScores, OpSummary
from opsmith.errors import BadInput
from opsmith.report.conventions import geometric_mean
from opsmith.report.exports import quantity_of
from opsmith.report.levels import level_scores
from opsmith.report.results import Results


class PublicTime(msgspec.Struct, frozen=True):
    """An entry of such a file; of its fields those that scores need.

    Attributes:
        mean: milliseconds.
        hardware: the device's name.
        quantity: what the mean is of; public files do not say.
        e: under ``E``, the same of the other quantity where the mean is of K.
    """

    mean: float
    hardware: str = ""
    quantity: str = ""
    e: Mapping[str, Any] | None = msgspec.field(default=None, name="E")


class AgainstFile(NamedTuple):
    """Scores against one file.

    Attributes:
        levels: as of a run; speeds only of quantities that the file has.
        notes: what a reader has to know of the comparison, one line each.
    """

    levels: tuple[LevelScores, ...]
    notes: tuple[str, ...]


def scores_against(results: Results, file: Path) -> AgainstFile:
    """Score a run of module problems against a file.

    Raises:
        BadInput: it cannot be read, is no such file, or knows no problem of the run.
    """
    entries = _read(file)
    known = {name: entry for name in results.summary.per_op if (entry := _entry(entries, name)) is not None}
    if not known:
        raise BadInput(f"{file} has times of none of this run's problems; opsmith baseline writes them")
    times_us = _times_us(results)
    quantity = quantity_of(results.verdicts)
    per_op = {
        name: _against(op, known.get(name), times_us[name], quantity) for name, op in results.summary.per_op.items()
    }
    return AgainstFile(level_scores(per_op, file.stem), tuple(_notes(results, known)))


def _read(file: Path) -> Mapping[str, Mapping[str, PublicTime | None]]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, PublicTime | None]])
    except OSError as exc:
        raise BadInput(f"{file} cannot be read: {exc.strerror}") from exc
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise BadInput(f"{file} is no file of baseline times: {exc}; opsmith baseline writes them") from exc


def _entry(entries: Mapping[str, Mapping[str, PublicTime | None]], name: str) -> PublicTime | None:
    level, file = public_place(split_sample(name)[0])
    return entries.get(level, {}).get(file)


def _times_us(results: Results) -> Mapping[str, Mapping[str, float]]:
    """Task -> quantity -> the solution's time."""
    found: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for verdict in results.verdicts:
        for timing in verdict.timings:
            found[verdict.op][timing.quantity].append(timing.candidate_us)
    times = {task: {quantity: geometric_mean(each) for quantity, each in of.items()} for task, of in found.items()}
    return defaultdict(dict, times)


def _against(op: OpSummary, entry: PublicTime | None, times_us: Mapping[str, float], quantity: str) -> OpSummary:
    """The op with speedups over the file's times; without any where one of both is missing."""
    baseline_ms = {} if entry is None else {entry.quantity or quantity: entry.mean}
    if entry is not None and entry.e is not None:
        baseline_ms["E"] = entry.e["mean"]
    speedups = {each: baseline_ms[each] * 1e3 / times_us[each] for each in baseline_ms if each in times_us}
    return msgspec.structs.replace(op, speedup_k=speedups.get("K"), speedup_e=speedups.get("E"))


def _notes(results: Results, known: Mapping[str, PublicTime]) -> Iterable[str]:
    asked, there = ({split_sample(name)[0] for name in names} for names in (results.summary.per_op, known))
    if len(there) < len(asked):
        yield f"{len(asked) - len(there):,} of {len(asked):,} problems have no time there and count as not timed"
    device = results.manifest.environment.device_name
    if others := sorted({entry.hardware for entry in known.values()} - {device, ""}):
        yield f"its times are of {', '.join(others)}, the run's of {device}"
