"""``opsmith tune``: works are found and their candidates compiled without a GPU, and are timed only on one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.e2e.test_prewarm import COMMAND

from opsmith.prewarm.tasks import Task
from opsmith.tune.measuring import compile_all, find_works


def test_candidates_of_traced_products_are_compiled_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile that the device has no room for is none of them; the rule's own is compiled by whoever uses it."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # Put back afterwards: the processes that compile set it to 0.
    tasks = [
        Task("mm.default", "bf16", "matmul/matmul.py:mm"),
        Task("convolution.default", "bf16", "convolution/convolution.py:convolution"),
    ]
    works = find_works(tasks, inputs=1, jobs=1, architecture=90)
    assert {"product", "gathered product"} == {work.family for work in works}
    assert all(len(work.candidates) > 10 and work.rule not in work.candidates for work in works)
    product = next(work for work in works if work.family == "product")
    fits, too_large = (64, 64, 64, 4, 3, 1), (256, 256, 128, 8, 4, 1)
    one = msgspec.structs.replace(product, candidates=(fits, too_large))
    assert [(one, 1)] == list(compile_all([one], jobs=1, architecture=90))
    assert any((tmp_path / "triton").rglob("*.cubin"))


def test_without_a_gpu_nothing_is_timed(tmp_path: Path) -> None:
    """One line, status 2."""
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("there is a GPU")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", COMMAND, "tune", "--ops", "mm"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (2, "") == (done.returncode, done.stdout)
    assert "there is no NVIDIA GPU to measure on" in done.stderr.splitlines()[-1]
    assert [] == list(tmp_path.iterdir())
