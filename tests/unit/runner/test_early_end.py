"""A judge that is killed while its zygote still imports leaves no folder behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: Makes the folder and the zygote as a judge does, and stays until it is killed.
JUDGE = """
import time
from opsmith.runner.processes.children import Processes
with Processes("cpu", memory_limit_bytes=1 << 30, output_limit_bytes=1 << 20) as processes:
    print(processes.scratch, flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.0, 0.3])
def test_a_killed_judge_leaves_no_folder(tmp_path: Path, after_s: float) -> None:
    """Its zygote, which torch's import keeps busy for seconds, removes it."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    judge = subprocess.Popen([sys.executable, "-c", JUDGE], stdout=subprocess.PIPE, env=environment, text=True)
    assert judge.stdout is not None
    with judge.stdout as told:
        scratch = Path(told.readline().strip())
    assert scratch.is_dir()
    time.sleep(after_s)
    judge.send_signal(signal.SIGKILL)
    judge.wait()
    deadline = time.monotonic() + 30
    while scratch.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [] == list(tmp_path.iterdir())
