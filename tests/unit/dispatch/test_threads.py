"""Threads compute while another switches kernels: no crash, no wrong result, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from tests.dispatch_tables import KERNELS, kernel_file

import opsmith

#: Longer where somebody asks for it: OPSMITH_STRESS_S=60.
STRESS_S = float(os.environ.get("OPSMITH_STRESS_S", "3"))


@pytest.mark.slow
@pytest.mark.timeout(STRESS_S + 120)
@pytest.mark.parametrize("kernels", [[], ["launched"]])
def test_eight_threads_compute_while_another_switches(kernels: list[str]) -> None:
    """In a process of its own, because a use of freed memory would end this one."""
    command = [sys.executable, "-m", "tests.dispatch_stress", str(STRESS_S), *kernels]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=STRESS_S + 90,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert ([], True) == (found["failed"], found["tables_restored"])
    assert min(found["rounds"], found["switched"], found["served"]) > 0
    assert 0 < found["removed"] < found["switched"], "both ways of switching off were taken"
    assert bool(kernels) is bool(found["planned"])


def test_a_thread_at_work_keeps_the_entries_but_not_the_kernels() -> None:
    """Who may be between torch's table and a kernel is left with an entry that still exists."""
    computing, stop = threading.Event(), threading.Event()

    def compute() -> None:
        while not stop.is_set():
            torch.relu(torch.ones(3))
            computing.set()

    opsmith.enable(KERNELS, ops="relu")
    thread = threading.Thread(target=compute)
    thread.start()
    computing.wait()
    try:
        registered = []
        for _ in range(5):
            opsmith.disable()
            registered.append(opsmith.active().registered)
            assert "switched off" in str(opsmith.active()) or not registered[-1]
    finally:
        stop.set()
        thread.join()
    opsmith.disable()
    assert 0 == opsmith.active().registered


def test_a_thread_that_waits_does_not_keep_the_entries() -> None:
    """A pool or a queue of the standard library is at rest, as a DataLoader's helpers mostly are."""
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait)
    thread.start()
    try:
        opsmith.enable(KERNELS, ops="relu")
        opsmith.disable()
        assert 0 == opsmith.active().registered
    finally:
        go_on.set()
        thread.join()


def test_a_kernel_that_disables_is_not_freed_under_its_own_call(tmp_path: Path) -> None:
    """Switched off at once; the entries go when nobody is inside."""
    kernel_file(tmp_path, "relu.default", "import opsmith\ndef kernel(x):\n    opsmith.disable()\n    return x + 1")
    opsmith.enable(tmp_path)
    assert torch.equal(torch.ones(3) + 1, torch.relu(torch.ones(3)))
    assert 3 == opsmith.active().registered
    assert torch.equal(torch.ones(3), torch.relu(torch.ones(3)))


def test_counts_of_several_threads_add_up() -> None:
    """Each answered call is counted once."""
    threads = [threading.Thread(target=lambda: [torch.relu(torch.ones(3)) for _ in range(2000)]) for _ in range(4)]
    with opsmith.enabled(KERNELS, ops="relu"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 8000 == opsmith.active().calls
