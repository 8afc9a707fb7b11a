"""The Triton collectives compile for a GPU that is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_triton_collectives_compile_for_hopper() -> None:
    """Blocks meet before and after each shot, whatever their number; half types go through the tensor cores."""
    command = [sys.executable, "-m", "tests.offline_collectives"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == shown.returncode, shown.stderr
    assert "one shot torch.bfloat16 2 ranks: 2 meetings, 2 seen by all warps, wide loads" in shown.stdout
    assert "one shot torch.float32 4 ranks: 2 meetings, 2 seen by all warps, wide loads" in shown.stdout
    assert "two shots torch.float16 4 ranks: 3 meetings, 3 seen by all warps, wide loads" in shown.stdout
    assert "matmul torch.bfloat16: tensor cores" in shown.stdout
