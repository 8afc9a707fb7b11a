"""Memory of a tree of processes is what they hold together."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opsmith.runner.processes.memory import proportional_bytes, tree_exceeds

PROGRAM = "import os, signal; held = b'1' * (64 << 20); os.fork(); print(len(held), flush=True); signal.pause()"


@pytest.fixture
def tree() -> Iterator[int]:
    """A process that shares 64 MiB with its child."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, start_new_session=True) as started:
        assert started.stdout is not None
        for _ in range(2):
            started.stdout.readline()
        yield started.pid
        os.killpg(started.pid, 9)


def test_the_memory_of_a_tree_is_that_of_all_with_shared_pages_once(tree: int) -> None:
    """One process of it holds half of what both share."""
    assert tree_exceeds(tree, 64 << 20)
    assert not tree_exceeds(tree, 128 << 20)
    assert proportional_bytes(tree) < 64 << 20


def test_a_process_that_lets_nobody_look_counts_with_all_that_is_resident(
    tree: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would hold nothing."""
    read = Path.read_text

    def refused(file: Path, *options: Any, **more: Any) -> str:
        if file.name == "smaps_rollup":
            raise PermissionError
        return read(file, *options, **more)

    monkeypatch.setattr(Path, "read_text", refused)
    assert tree_exceeds(tree, 128 << 20)
    assert proportional_bytes(tree) > 64 << 20


def test_a_process_that_has_ended_holds_nothing() -> None:
    """It may end between two looks."""
    with subprocess.Popen([sys.executable, "-c", ""]) as started:
        pass
    assert not tree_exceeds(started.pid, 0)
