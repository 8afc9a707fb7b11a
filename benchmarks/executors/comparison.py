"""What two runs of the same question have to have in common, whatever they were judged on."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opsmith.core.run import RunDirectory


def found(run: RunDirectory) -> Counter[tuple[str, str, str, str]]:
    """(op, case, status, hash of the inputs) of every verdict, as often as there is one.

    Without the hash where an ``out=`` argument is among the inputs: what it holds is whatever memory held.
    """
    written = {planned.op for planned in run.plan().ops if _has_out(planned.schema)}
    return Counter(
        (verdict.op, verdict.case, str(verdict.status), "" if verdict.op in written else verdict.content_hash)
        for verdict in run.verdicts()
    )


def _has_out(schema: str) -> bool:
    name, _, arguments = schema.partition("(")
    return "!)" in arguments and not name.partition(".")[0].endswith("_")


def judged_twice(run: RunDirectory) -> int:
    """How many verdicts are about what another one is about."""
    counts = Counter((verdict.op, verdict.case) for verdict in run.verdicts())
    return sum(count - 1 for count in counts.values())


def differences(one: RunDirectory, other: RunDirectory) -> Iterator[str]:
    """In what two runs differ that should not, a line each."""
    if (one.path / "summary.json").read_bytes() != (other.path / "summary.json").read_bytes():
        yield "their summaries differ"
    ours, theirs = found(one), found(other)
    for side, left in (("first", ours - theirs), ("second", theirs - ours)):
        yield from (f"{' '.join(key)}: {count} more in the {side}" for key, count in sorted(left.items()))
    for run in (one, other):
        if twice := judged_twice(run):
            yield f"{run.path.name}: {twice} verdicts too many"


def asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a script was asked, for the record; where it puts things is nobody else's concern."""
    return {name: value for name, value in vars(arguments).items() if not isinstance(value, Path)}


def described(run: RunDirectory, lines: list[str]) -> dict[str, Any]:
    """A run for the record."""
    manifest = run.manifest()
    return {
        "wall_s": manifest.wall_s,
        "devices": len(manifest.devices),
        "devices_lost": sum(device.lost for device in manifest.devices),
        "verdicts": sum(1 for _ in run.verdicts()),
        "judged_twice": judged_twice(run),
        "differences": lines[:20],
    }
