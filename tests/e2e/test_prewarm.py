"""``opsmith prewarm``: what it compiles once is there for whoever comes later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = "import sys; from opsmith.cli.main import main; sys.argv[0] = 'opsmith'; main()"


def prewarmed(cache: Path, *options: str) -> list[dict[str, Any]]:
    """What the command says of each op, with a Triton cache of the test's own."""
    command = [sys.executable, "-c", COMMAND, "prewarm", "--arch", "90", "--json", *options]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_second_run_finds_what_the_first_one_compiled(tmp_path: Path) -> None:
    """For a GPU that is not here, in processes that share nothing but Triton's cache."""
    options = ("--ops", "relu,_softmax.default", "--inputs", "1", "--dtype", "f32", "--jobs", "1")
    first, second = (prewarmed(tmp_path / "triton", *options) for _ in range(2))
    assert ["_softmax.default", "relu.default"] == [one["op"] for one in first]
    assert all(one["compiled"] >= 1 and one["problem"] is None for one in first)
    assert [0, 0] == [one["compiled"] for one in second]
    assert [one["compiled"] for one in first] == [one["cached"] for one in second]
