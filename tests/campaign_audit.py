"""Recomputes the figures of a campaign from its journal, with nothing of opsmith.

``python -m tests.campaign_audit CAMPAIGN`` prints them, and where ``summary.json``, the page or ``run/`` say otherwise.
"""

from __future__ import annotations

import html
import json
import math
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)


def figures(journal: Path) -> dict[str, Any]:
    """What the journal says of a campaign: tasks, models, what was spent."""
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as db:
        attempts = db.execute("SELECT task, number, model, kernel FROM attempts ORDER BY task, number").fetchall()
        judged = {
            (task, kernel): json.loads(blob)
            for task, kernel, blob in db.execute(
                "SELECT task, kernel, judged FROM judgements WHERE state = 'answered' ORDER BY rowid"
            )
        }
        last = {(task, kernel): json.loads(found) for task, kernel, found in db.execute("SELECT * FROM held_out")}
        usd, tokens = db.execute("SELECT total(usd), sum(tokens) FROM exchanges WHERE state != 'refused'").fetchone()
        [device_s] = db.execute("SELECT total(device_s) FROM judgements WHERE state = 'answered'").fetchone()
    tasks = sorted({task for task, *_ in attempts})
    kept = {task: _kept(task, attempts, judged, last) for task in tasks}
    models = sorted({model for _, _, model, _ in attempts})
    return {
        "solved": sum(winner is not None for winner in kept.values()),
        "attempts": len(attempts),
        "tasks": {task: None if winner is None else [winner[2], winner[1]] for task, winner in kept.items()},
        "by_model": {
            name: _of_model(name, tasks, attempts, judged, last, kept) for name in ("all", *models)
        },
        "usd": usd,
        "tokens": tokens or 0,
        "device_s": device_s,
    }  # fmt: skip


def _speed(found: dict[str, Any]) -> float:
    summary = found["summary"]
    return next((summary[name] for name in ("speedup_k", "speedup_e") if summary[name] is not None), 0.0)


def _kept(task: str, attempts: list[Any], judged: dict[Any, Any], last: dict[Any, Any]) -> Any:
    """The attempt whose kernel is delivered: of the accepted ones the fastest that was not refused last."""
    right = [a for a in attempts if a[0] == task and (task, a[3]) in judged]
    right = [a for a in right if judged[task, a[3]]["summary"]["accepted"]]
    for attempt in sorted(right, key=lambda a: (-_speed(judged[task, a[3]]), a[1])):
        if last[task, attempt[3]]["accepted"]:
            return attempt
    return None


def _of_model(
    name: str, tasks: list[str], attempts: list[Any], judged: Any, last: Any, kept: dict[str, Any]
) -> dict[str, Any]:
    solved = wins = 0
    firsts, lows, longest = [], [], 0
    for task in tasks:
        own = [a for a in attempts if a[0] == task and name in ("all", a[2])]
        longest = max(longest, len(own))
        good = [
            place
            for place, a in enumerate(own)
            if (task, a[3]) in judged
            and judged[task, a[3]]["summary"]["accepted"]
            and last.get((task, a[3]), {"accepted": True})["accepted"]
        ]
        winner = kept[task]
        is_own = winner is not None and name in ("all", winner[2])
        solved += bool(good)
        wins += is_own
        firsts.append(good[0] + 1 if good else math.inf)
        if is_own:
            lows.append([last[task, winner[3]]["low"]])
        else:
            lows.append([_low(judged[task, own[place][3]]) for place in good])
    return {
        "attempts": sum(name in ("all", a[2]) for a in attempts),
        "solved": solved,
        "wins": wins,
        "solved_after": [sum(first <= n for first in firsts) / len(tasks) for n in range(1, longest + 1)],
        "fast_p": {
            f"{p:g}": sum(
                bool(found) and (p == 0 or any(low is not None and low > p for low in found)) for found in lows
            )
            / len(tasks)
            for p in THRESHOLDS
        },
    }


def _low(found: dict[str, Any]) -> float | None:
    timings = [timing for verdict in found["verdicts"] for timing in verdict.get("timings", ())]
    for quantity in ("K", "E"):
        lows = [timing["low"] for timing in timings if timing["quantity"] == quantity]
        if lows:
            return math.exp(sum(map(math.log, lows)) / len(lows))
    return None


def disagreements(campaign: Path, terminal: str | None = None) -> list[str]:
    """Where a campaign's documents say something else than its journal.

    Args:
        campaign: its directory.
        terminal: what the command printed.
    """
    own = figures(campaign / "journal.sqlite")
    summary = json.loads((campaign / "summary.json").read_text())
    page = html.unescape((campaign / "report.html").read_text())
    run = campaign / "run" / "summary.json"
    correct = json.loads(run.read_text())["ops"]["correct"] if run.exists() else 0
    models = {name: {key: found[key] for key in own["by_model"]["all"]} for name, found in summary["by_model"].items()}
    tiles = {name: int(value.replace(",", "")) for name, value in _tiles(page).items()}
    rows = {name: values for name in own["by_model"] if (values := _row(page, name))}
    said = {
        "summary: solved": (summary["accepted"], own["solved"]),
        "run: correct": (correct, own["solved"]),
        "summary: kernels": (
            {task: found["model"] for task, found in summary["tasks"].items()},
            {task: winner and winner[0] for task, winner in own["tasks"].items()},
        ),
        "summary: models": (models, own["by_model"]),
        "summary: attempts": (sum(summary["attempts"].values()), own["attempts"]),
        "summary: tokens": (summary["spent"]["tokens"], own["tokens"]),
        "summary: usd": (round(summary["spent"]["usd"], 9), round(own["usd"], 9)),
        "summary: device_s": (round(summary["spent"]["device_s"], 6), round(own["device_s"], 6)),
        "page: tiles": (tiles, {"Tasks solved": own["solved"], "Attempts": own["attempts"], "Tokens": own["tokens"]}),
        "page: models": (
            rows,
            {
                name: [
                    found["attempts"],
                    found["solved"],
                    found["wins"],
                    *(f"{100 * v:.0f} %" for v in found["fast_p"].values()),
                ]
                for name, found in own["by_model"].items()
            },
        ),
        "folder": (_delivered(campaign / "kernels"), own["solved"]),
    }
    if terminal is not None:
        noun = "task" if len(own["tasks"]) == 1 else "tasks"
        line = f"{own['solved']} of {len(own['tasks'])} {noun} have a kernel; {own['tokens']:,} tokens"
        said["terminal"] = (line in terminal, True)
    return [f"{name}: {found}, by the journal {right}" for name, (found, right) in said.items() if found != right]


def _tiles(page: str) -> dict[str, str]:
    text = re.sub(r"<[^>]+>", "\n", page[page.index('aria-label="Headline"') : page.index('class="plots"')])
    words = [line.strip() for line in text.split("\n") if line.strip()]
    return {name: words[words.index(name) + 1] for name in ("Tasks solved", "Attempts", "Tokens")}


def _row(page: str, name: str) -> list[Any]:
    """The cells of a model's row."""
    table = page[page.index('id="models-title"') : page.index('id="tasks"')]
    found = re.search(rf'<th scope="row" class="mono">{re.escape(name)}</th>(.*?)</tr>', table)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", found[1]) if found else []
    return [int(cell) if cell.isdigit() else cell for cell in cells]


def _delivered(kernels: Path) -> int:
    manifest = kernels / "manifest.json"
    return len(json.loads(manifest.read_text())["kernels"]) if manifest.exists() else 0


if __name__ == "__main__":
    sys.stdout.write(json.dumps(figures(Path(sys.argv[1]) / "journal.sqlite"), indent=2) + "\n")
    sys.stdout.writelines(f"{line}\n" for line in disagreements(Path(sys.argv[1])))
