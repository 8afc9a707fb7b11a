"""``opsmith mutants`` from end to end: faults are killed, what changes nothing is told apart, and a record goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from opsmith.mutation.tables import Study

pytestmark = pytest.mark.slow
OPSMITH = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"
KERNEL = '''
import torch


def relu__default_kernel_impl(x):
    """Zero where it is negative; NaN stays."""
    return torch.where(x < 0, torch.zeros_like(x), x) * 1.0
'''


def mutants(folder: Path, *options: str) -> tuple[int, Study]:
    """Run the command on one kernel: its status and what it prints."""
    kernel = folder / "relu.py"
    kernel.write_text(KERNEL)
    asked = ("mutants", str(kernel), "--no-public", "--equivalence", "30", "-o", str(folder / "record"), "--json")
    done = subprocess.run(
        [sys.executable, "-c", OPSMITH, *asked, *options], capture_output=True, check=False, timeout=560
    )
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.returncode, msgspec.json.decode(done.stdout, type=Study)


@pytest.mark.timeout(900)
def test_a_handful_of_mutants(tmp_path: Path) -> None:
    """A command that is given again judges nothing twice."""
    options = ("--operators", "operand_dropped,direction,branches_swapped,neighbour,nan_lost", "--seed", "3")
    status, study = mutants(tmp_path, *options)
    assert {} == study.refused
    assert 6 == study.distinct
    assert 0 == status
    assert (5, 1) == (study.total.killed, study.total.equivalent)
    assert 1 == study.by_operator["operand_dropped"].equivalent  # A factor of one.
    record = tmp_path / "record" / "outcomes.jsonl"
    before = record.read_bytes()
    assert (status, study) == mutants(tmp_path, *options)
    assert before == record.read_bytes()
    assert "opsmith mutants" in (tmp_path / "record" / "run.json").read_text()
    assert "| operand_dropped |" in (tmp_path / "record" / "table.md").read_text()
