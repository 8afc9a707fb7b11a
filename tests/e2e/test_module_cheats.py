"""Dishonest solutions of module problems are stopped, and their honest twins are accepted."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest
from tests.cheats.modules.corpus import ModuleHack, Side, read_corpus, write

from opsmith.core.run import RunDirectory, Summary
from opsmith.core.verdict import Status

pytestmark = [pytest.mark.slow, pytest.mark.corpus]

HACKS = read_corpus()
OPSMITH = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"


class Judged:
    """What the runs over both sides of the corpus found; each run is made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._run = cache(lambda side, policy: _judge(side, policy, folder / f"{side}-{policy}"))

    def accepted(self, side: Side, hack: ModuleHack) -> bool:
        summary, _ = self._run(side, hack.about.policy)
        return summary.per_op[hack.name].accepted

    def statuses(self, side: Side, hack: ModuleHack) -> set[Status]:
        summary, _ = self._run(side, hack.about.policy)
        op = summary.per_op[hack.name]
        conduct = {Status.DISHONEST} if op.dishonest else set()
        return {Status(status) for status in op.statuses} | conduct

    def complaint(self, side: Side, hack: ModuleHack) -> str | None:
        """The first thing that was found wrong."""
        _, complaints = self._run(side, hack.about.policy)
        return complaints.get(hack.name)


def _judge(side: Side, policy: str, folder: Path) -> tuple[Summary, dict[str, str]]:
    folders = write([hack for hack in HACKS if hack.about.policy == policy], side, folder)
    done = subprocess.run(
        [
            *(sys.executable, "-c", OPSMITH, "run", "--suite", "modules", "--problems", str(folders.problems)),
            *("--backend", str(folders.solutions), "--device", "cpu", "--policy", policy, "--integrity", "on"),
            *("--timing", "off", "-o", str(folder / "run"), "--json"),
        ],
        capture_output=True,
        check=False,
        timeout=280,
    )
    assert done.returncode in (0, 1), done.stderr.decode()
    complaints: dict[str, str] = {}
    for verdict in RunDirectory(folder / "run").verdicts():
        if verdict.status is not Status.PASSED:
            complaints.setdefault(verdict.op, f"{verdict.status}: {verdict.detail}")
    return msgspec.json.decode(done.stdout, type=Summary), complaints


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The runs, shared by all tests here."""
    return Judged(tmp_path_factory.mktemp("modules"))


@pytest.mark.parametrize("hack", HACKS, ids=[hack.name for hack in HACKS])
def test_a_dishonest_solution_is_stopped(judged: Judged, hack: ModuleHack) -> None:
    """For the reason that its about.toml names, not for a mistake of ours."""
    assert not judged.accepted("hack", hack)
    found = judged.statuses("hack", hack)
    assert set(hack.about.stopped_by) & found, judged.complaint("hack", hack)
    # What composes in the open is no fraud.
    assert Status.DISHONEST not in found or hack.about.stopped_by != (Status.POLICY,)


@pytest.mark.parametrize("hack", HACKS, ids=[hack.name for hack in HACKS])
def test_its_honest_twin_is_accepted(judged: Judged, hack: ModuleHack) -> None:
    """The same problem in the same style without the cheat: what stops the hack is the cheat."""
    assert judged.complaint("honest", hack) is None
    assert judged.accepted("honest", hack)
