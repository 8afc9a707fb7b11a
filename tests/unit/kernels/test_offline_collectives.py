"""The Triton collectives compile for a GPU that is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_triton_collectives_compile_for_hopper() -> None:
    """A block waits for each peer before and after the reduction; half types go through the tensor cores."""
    command = [sys.executable, "-m", "tests.offline_collectives"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == shown.returncode, shown.stderr
    assert "all_reduce torch.bfloat16 2 ranks: 2 waits, wide loads" in shown.stdout
    assert "all_reduce torch.float32 4 ranks: 6 waits, wide loads" in shown.stdout
    assert "matmul torch.bfloat16: tensor cores" in shown.stdout
