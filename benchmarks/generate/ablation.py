"""What is an advisor worth? Campaigns of the same tasks without one, with one, and with one that sees pictures.

    opsmith generate ... -o off
    opsmith generate ... --advisor MODEL -o text
    opsmith generate ... --advisor MODEL --advisor-sees pictures -o pictures
    python -m benchmarks.generate.ablation off text pictures

Prints a table in Markdown out of their ``summary.json``: a row a campaign, then the curves that the pages draw, as
numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.report.conventions import geometric_mean

_HEAD = (
    *("advisor", "tasks", "solved", "fast_1", "fast_1.5", "geomean of kernels", "tokens", "advisor's tokens"),
    *("hints", "taken", "faster", "slower", "wrong", "pictures"),
)


def table(summaries: Sequence[Mapping[str, Any]]) -> str:
    """The table and the curves.

    Args:
        summaries: of the campaigns, ``summary.json`` decoded.
    """
    rows = [_HEAD, ("---",) * len(_HEAD), *map(_row, summaries)]
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([*lines, "", *(line for summary in summaries for line in _curves(summary))]) + "\n"


def setting(summary: Mapping[str, Any]) -> str:
    """``off``, ``text`` or ``pictures``; ``pictures, but blind`` where the model took none."""
    advisor = summary["options"].get("advisor")
    if advisor is None:
        return "off"
    blind = advisor["sees"] == "pictures" and summary["advisor"]["blind"] == summary["advisor"]["exchanges"]
    return f"{advisor['sees']}, but blind" if blind else str(advisor["sees"])


def _row(summary: Mapping[str, Any]) -> tuple[object, ...]:
    everybody, advisor = summary["by_model"]["all"], summary.get("advisor") or {}
    speeds = [task["speedup_k"] or task["speedup_e"] for task in summary["tasks"].values() if task["accepted"]]
    timed = [speed for speed in speeds if speed]
    results = advisor.get("results", {})
    return (
        *(setting(summary), len(summary["tasks"]), summary["accepted"]),
        *(f"{100 * everybody['fast_p'][p]:.0f} %" for p in ("1", "1.5")),
        *(f"{geometric_mean(timed):.2f}x" if timed else "", summary["spent"]["tokens"], advisor.get("tokens", 0)),
        *(advisor.get("hints", 0), advisor.get("taken", 0)),
        *(results.get(result, 0) for result in ("faster", "slower", "wrong")),
        advisor.get("pictures", 0),
    )


def _curves(summary: Mapping[str, Any]) -> Iterator[str]:
    shares = ", ".join(f"{100 * share:.0f} %" for share in summary["by_model"]["all"]["solved_after"])
    yield f"{setting(summary)}: tasks solved by the first n attempts: {shares}"
    steps: dict[int, int] = {}
    for point in summary["spending"]:
        steps.setdefault(point["solved"], point["tokens"])
    reached = ", ".join(f"{solved} by {tokens:,}" for solved, tokens in steps.items() if solved)
    yield f"{setting(summary)}: tasks solved by tokens spent: {reached or 'none'}"


def main(words: Sequence[str] | None = None) -> None:
    """Print the table of the campaigns in some folders."""
    folders = [Path(word) for word in (sys.argv[1:] if words is None else words)]
    print(table([msgspec.json.decode((folder / "summary.json").read_bytes()) for folder in folders]), end="")


if __name__ == "__main__":
    main()
