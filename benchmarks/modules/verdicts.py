"""Where two ways of judging one run folder differ, and why: ``--tolerance kernelbench`` against opsmith's own rules.

::

    python -m benchmarks.modules.verdicts OUT

OUT gets the directories of both runs, ``verdicts.csv`` as ``opsmith compare --csv`` writes it, and ``verdicts.md`` with
a row for each solution of ``varied/``: what its first line says it is, what each way of judging says, and why.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from opsmith.core.problems import split_sample

SOLUTIONS = Path(__file__).parent / "varied"
_OPSMITH = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"
_FILE = re.compile(r"level_(\d+)_problem_(\d+)_sample_\d+_kernel\.py")
_TASK = re.compile(r"L(\d+)/(\d+)_")

#: Way of judging -> its options. Solutions may compose torch's ops in both: values and honesty decide.
RULES = {
    "kernelbench": ("--tolerance", "kernelbench", "--integrity", "off"),
    "own": ("--integrity", "on"),
}


class Row(NamedTuple):
    """One solution.

    Attributes:
        file: its name.
        what: it is.
        outcomes: under each of :data:`RULES`.
        why: the second did not pass, else the first.
    """

    file: str
    what: str
    outcomes: tuple[str, str]
    why: str

    @property
    def differs(self) -> bool:
        """Whether one accepts what the other does not."""
        return len({outcome == "PASSED" for outcome in self.outcomes}) > 1


def judge(name: str, out: Path) -> None:
    """Judge the folder under one of :data:`RULES`; the run's directory in ``out`` is called like it."""
    found = [match for file in SOLUTIONS.iterdir() if (match := _FILE.fullmatch(file.name))]
    ops = ",".join(sorted({f"L{match[1]}/{match[2]}_*" for match in found}))
    _opsmith(
        *(
            "run",
            "--suite",
            "modules",
            "--backend",
            str(SOLUTIONS),
            "--ops",
            ops,
            "--device",
            "cpu",
            "--sizes",
            "small",
        ),
        *("--policy", "any", "--timing", "off", "--seed", "0", "-o", str(out / name), *RULES[name]),
    )


def rows(table: Path) -> list[Row]:
    """Read what ``opsmith compare --csv`` wrote of two runs."""
    found: dict[str, list[dict[str, str]]] = {}
    with table.open() as stream:
        for row in csv.DictReader(stream):
            found.setdefault(row["task"], []).append(row)
    return [_row(task, *pair) for task, pair in found.items()]


def _row(task: str, first: dict[str, str], second: dict[str, str]) -> Row:
    problem, sample = split_sample(task)
    place = _TASK.match(problem)
    assert place is not None
    file = f"level_{place[1]}_problem_{place[2]}_sample_{sample}_kernel.py"
    what = (SOLUTIONS / file).read_text().partition("\n")[0].strip('"')
    return Row(file, what, (first["outcome"], second["outcome"]), second["why"] or first["why"])


def markdown(found: Sequence[Row]) -> Iterable[str]:
    """The table of those that differ, then that of the others."""
    differ = [row for row in found if row.differs]
    accepted = [sum(row.outcomes[number] == "PASSED" for row in found) for number in (0, 1)]
    yield f"Of {len(found)} solutions {accepted[0]} are accepted under `--tolerance kernelbench`, {accepted[1]} under"
    yield f"opsmith's own rules, {len(differ)} of them under one alone."
    for title, part in (("Accepted under one", differ), ("Judged alike", [row for row in found if not row.differs])):
        yield from (
            "",
            f"## {title}",
            "",
            "| solution | what it is | kernelbench | own rules | why |",
            "|---|---|---|---|---|",
        )
        yield from map(_line, part)


def _line(row: Row) -> str:
    cells = (row.file.removesuffix("_kernel.py"), row.what, *row.outcomes, row.why.replace("|", "\\|"))
    return f"| {' | '.join(cells)} |"


def _opsmith(*words: str, folder: Path | None = None) -> None:
    done = subprocess.run([sys.executable, "-c", _OPSMITH, *words], cwd=folder, check=False)  # noqa: S603 - ourselves
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)


def main() -> None:
    """Judge twice, compare, write both tables."""
    out = Path(sys.argv[1])
    for name in RULES:
        judge(name, out)
    _opsmith("compare", *RULES, "--csv", "verdicts.csv", folder=out)
    text = "\n".join(["# Where the verdicts differ", "", *markdown(rows(out / "verdicts.csv"))])
    (out / "verdicts.md").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
