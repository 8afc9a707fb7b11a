"""What import-linter cannot see: which packages a process really loads."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_judge_loads_no_torch_no_triton_and_no_numpy() -> None:
    """The judge plans and keeps the books: without torch it has no device to lose and starts at once."""
    judges = "opsmith.pipeline, opsmith.serve.server"
    program = f"import sys, {judges}; print(sorted({{'torch', 'triton', 'numpy'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "[]\n" == done.stdout
