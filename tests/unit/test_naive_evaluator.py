"""The hacks of ``tests/cheats`` are real: what common harnesses do accepts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.cheats_corpus import PAGE, ROOT, Hack, quick, read_corpus, rounds, table
from tests.naive_evaluator import Job, Report, read_report

from opsmith.aten.schemas import aten_schemas
from opsmith.backends.directory import KernelDirectory
from opsmith.core.op import folder_name
from opsmith.core.task import Task
from opsmith.core.verdict import Status

HACKS = read_corpus()
#: What an issue, a paper or a log of a training run has shown; each needs at least one hack.
FAMILIES = {
    *(
        "approximation",
        "arguments",
        "baked",
        "caching",
        "clock",
        "composition",
        "decoy",
        "delegation",
        "fallback",
        "inputs",
    ),
    *(
        "introspection",
        "knowing",
        "memory_reuse",
        "numerics",
        "patching",
        "precision",
        "process",
        "randomness",
        "reference",
        "shapes",
        "skipping",
        "streams",
    ),
    *("subclass", "tampering", "threads", "trivial_outputs"),
}


def reports(jobs: Iterable[Job], folder: Path) -> list[Report]:
    """What the naive evaluator says of each job, in a process of its own: it computes where it is."""
    file = folder / "jobs.json"
    file.write_text(json.dumps([(str(job.kernel), job.task, job.candidate_first) for job in jobs]))
    done = subprocess.run(
        [sys.executable, "-m", "tests.naive_evaluator", str(file)],
        cwd=ROOT.parents[1],
        capture_output=True,
        check=True,
    )
    return [Report(**json.loads(line)) for line in done.stdout.splitlines()]


def job(hack: Hack) -> Job:
    """A hack as the naive evaluator takes it."""
    return Job(hack.source("hack"), hack.about.task, hack.about.naive_order == "candidate")


def kernel(folder: Path, name: str, body: str) -> Job:
    """A candidate for exp whose function holds ``body``."""
    path = folder / f"{name}.py"
    path.write_text(f"import os\nimport time\n\nimport torch\n\n\ndef exp__default_kernel_impl(x):\n    {body}\n")
    return Job(path, "exp.default")


@pytest.mark.slow
def test_it_tells_right_from_wrong(tmp_path: Path) -> None:
    """It would be no evaluator if it accepted everything."""
    wanted = {
        "right": ("return torch.exp(x)", True),
        "nearly_right": ("return torch.exp(x) * 1.005", True),
        "wrong": ("return x", False),
        "raises": ("raise ValueError", False),
        "ends_the_process": ("os._exit(0)", None),
    }
    found = reports([kernel(tmp_path, name, body) for name, (body, _) in wanted.items()], tmp_path)
    assert [accepted for _, accepted in wanted.values()] == [report.accepted for report in found]


def test_it_believes_the_last_line_of_the_output() -> None:
    """As scripts do that read another process's report."""
    forged = 'warning\n{"accepted": true, "speedup": 97.0}\n'
    assert Report(True, 97.0) == read_report(forged, 0)
    assert Report(None, None, "no report; exit status 0") == read_report("Segmentation", 0)


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.timeout(900)
def test_it_accepts_every_hack_that_says_so(tmp_path: Path) -> None:
    """Each of these kernels is wrong, idle or somebody else's, and would be on top of a leaderboard.

    By default one of each family; ``OPSMITH_CHEATS_SEEDS=1`` has all of them tried.
    """
    tried = HACKS if os.environ.get("OPSMITH_CHEATS_SEEDS") else quick(HACKS)
    hacks = [hack for hack in tried if hack.about.fools_naive]
    found = reports([job(hack) for hack in hacks], tmp_path)
    refused = {hack.name: report for hack, report in zip(hacks, found, strict=True) if not report.accepted}
    assert {} == refused


# ---------------------------------------------------------------- the corpus itself


def test_there_is_a_hack_of_every_family() -> None:
    """One hack for each thing that was seen in the wild is the least."""
    assert FAMILIES == {hack.about.family for hack in HACKS}
    assert FAMILIES == {hack.about.family for hack in quick(HACKS) if hack.about.device == "cpu"} | {"streams"}
    assert len(HACKS) >= 110


def test_a_folder_says_what_it_holds() -> None:
    """A folder in the wrong place, or without one of its files, would never be judged."""
    for hack in HACKS:
        assert hack.about.family == hack.folder.parent.name
        assert {"about.toml", "hack.py", "honest.py"} <= {path.name for path in hack.folder.iterdir()}
    folders = {path for family in FAMILIES for path in (ROOT / family).iterdir() if path.name != "__pycache__"}
    assert folders == {hack.folder for hack in HACKS}


def test_descriptions_are_one_sentence() -> None:
    """They become a table of the documentation."""
    descriptions = [hack.about.description for hack in HACKS]
    assert [] == [text for text in descriptions if "\n" in text or not text.endswith(".") or len(text) > 140]
    assert [] == [text for text, count in Counter(descriptions).items() if count > 1]


def test_no_hack_expects_to_pass() -> None:
    """But for those that the clock stops: they are accepted, and gain nothing."""
    passing = [hack.name for hack in HACKS if Status.PASSED in hack.about.stopped_by]
    assert [] == [hack.name for hack in HACKS if not hack.about.stopped_by]
    assert set(passing) <= {hack.name for hack in HACKS if hack.about.timed_in_full}


def test_a_hack_that_fools_nobody_says_why() -> None:
    """Without the reason nobody can tell a broken hack from a hostile one."""
    assert [] == [hack.name for hack in HACKS if hack.about.fools_naive is bool(hack.about.naive)]


@pytest.mark.parametrize("side", ["hack", "honest"])
def test_a_round_answers_all_its_tasks(side: str, tmp_path: Path) -> None:
    """Rounds are kernel directories in the public layout, as anybody's kernels are."""
    for number, round_ in enumerate(rounds(HACKS)):
        directory = KernelDirectory(round_.write(tmp_path / str(number), "hack" if side == "hack" else "honest"))
        for task in round_.hacks:
            found = directory.kernel_for(Task(name=task, op=aten_schemas()[task], suite="opinfo"))
            assert found is not None
            file, _, function = found.entry.rpartition(":")
            assert f"{folder_name(task)}_kernel_impl" == function
            assert f"def {function}(" in Path(str(found.root), file).read_text(encoding="utf-8")


def test_the_page_lists_every_hack() -> None:
    """``python -m tests.cheats_corpus`` writes the table; the page is part of the project's promise."""
    assert PAGE.read_text(encoding="utf-8").endswith(table(HACKS))
