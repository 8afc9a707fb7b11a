"""Scripts of odd ways under a tracer: their outcome is theirs, and the trace is right or its loss is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.odd_scripts import SCRIPTS

from opsmith.traces.grammar import parse_headers, parse_trace

#: What a shell says of a program that an interrupt ended.
INTERRUPTED = {-2: 130}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of the scripts, and how each ended both ways."""
    folder = tmp_path_factory.mktemp("scripts")
    done = subprocess.run(
        [sys.executable, "-m", "tests.odd_scripts", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert 0 == done.returncode, done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_tracer_changes_nothing_and_loses_nothing_silently(ran: tuple[Path, dict[str, Any]], name: str) -> None:
    """What the script prints and how it ends is the same, and the trace has its calls."""
    folder, found = ran
    odd, plain, traced = SCRIPTS[name], found[name]["plain"], found[name]["traced"]
    assert plain["out"] == traced["out"], traced["err"]
    assert INTERRUPTED.get(plain["status"], plain["status"]) == traced["status"], traced["err"]
    assert odd.says in traced["err"]
    assert "\x1b" not in traced["err"]
    dies = plain["status"] < 0 and plain["status"] != -2
    by_itself = dies or "os_exit" in name or name == "becomes"
    trace = folder / f"{name}.txt"
    if odd.relus == 0:
        assert not trace.exists()
        return
    text = trace.read_text()
    entries = parse_trace(text, source=name)
    assert odd.relus <= sum(entry.count for entry in entries if "relu" in entry.call.op), text
    assert (by_itself and "incomplete" in parse_headers(text)) or (not by_itself and "incomplete" not in text)
    assert not list(folder.glob(f"{name}.txt.*"))
