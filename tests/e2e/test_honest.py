"""No honest kernel is turned away: every one of ``tests/cheats/honest`` is accepted with all checks on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from tests.cheats.honest.corpus import Round, read_corpus, rounds

from opsmith.core.run import RunDirectory, Summary
from opsmith.core.verdict import Status

pytestmark = [pytest.mark.slow, pytest.mark.corpus]

ROUNDS = rounds(read_corpus())
OPSMITH = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"


def judge(round_: Round, folder: Path) -> tuple[Summary, dict[str, str]]:
    """Run ``opsmith run`` over a round: its summary, and the first complaint about each op that is not accepted."""
    kernels = round_.write(folder / "kernels")
    done = subprocess.run(
        [
            *(sys.executable, "-c", OPSMITH, "run", "--suite", "opinfo", "--backend", str(kernels)),
            *("--ops", ",".join(round_.kernels), "--dtype", round_.dtype, "--device", round_.device),
            *("--policy", round_.policy, "--integrity", "on", "--timing", "off", "-o", str(folder / "run"), "--json"),
        ],
        capture_output=True,
        check=False,
        timeout=280,
    )
    assert done.returncode in (0, 1), done.stderr.decode()
    # Variants are judged beside what was planned, and are not part of how far the plan is.
    assert all(int(judged) <= int(planned) for judged, planned in re.findall(rb"judging: (\d+) of (\d+)", done.stderr))
    complaints: dict[str, str] = {}
    for verdict in RunDirectory(folder / "run").verdicts():
        if verdict.status is not Status.PASSED and not verdict.expects_error:
            complaints.setdefault(verdict.op, f"{verdict.status}: {verdict.detail} on {verdict.inputs}")
    return msgspec.json.decode(done.stdout, type=Summary), complaints


@pytest.mark.parametrize("round_", ROUNDS, ids=[round_.name for round_ in ROUNDS])
def test_every_honest_kernel_is_accepted(round_: Round, tmp_path: Path) -> None:
    """A judge that turns honest work away trains people, and models, to work around it."""
    if round_.device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    summary, complaints = judge(round_, tmp_path)
    refused = {
        kernel.name: complaints.get(task, "answered no case")
        for task, kernel in round_.kernels.items()
        if not summary.per_op[task].accepted
    }
    assert {} == refused
    assert set(round_.kernels) == set(summary.per_op)
