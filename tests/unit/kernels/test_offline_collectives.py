"""Kernels by which ranks talk compile for a GPU that is not there."""

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


def test_the_communicating_kernels_compile_for_hopper() -> None:
    """All that opsmith's own launch on two and on four ranks; products go through the tensor cores of a Hopper GPU."""
    command = [sys.executable, "-m", "tests.offline_communication"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == shown.returncode, shown.stdout
    assert "all_reduce_norm_kernel: 2 signals, wide accesses, no local memory, products none" in shown.stdout
    assert "gather_multiply_kernel: 4 signals, wide accesses, no local memory, products wgmma" in shown.stdout
    assert "multiply_push_kernel: 0 signals, wide accesses, no local memory, products wgmma" in shown.stdout
