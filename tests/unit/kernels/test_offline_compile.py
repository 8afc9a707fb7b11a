"""Kernels compile for a GPU, which running them under the interpreter does not show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: One op of each way of launching, small to compile.
OPS = (
    "relu.default,add.Tensor,sum.dim_IntList,_softmax.default,native_layer_norm.default,mm.default,cat.default,"
    "nonzero.default,_to_copy.default"
)


def test_one_op_of_each_family_compiles_for_hopper() -> None:
    """In a process of its own, where Triton compiles instead of interpreting."""
    command = [sys.executable, "-m", "tests.offline_compile", "--ops", OPS, "--most", "2", "--suites", "traces"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == shown.returncode, shown.stdout + shown.stderr
    assert f"{{'compiled': {len(OPS.split(','))}}}" in shown.stdout
