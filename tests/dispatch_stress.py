"""Threads that compute while kernels are switched on, off, replaced and removed under them.

``python -m tests.dispatch_stress SECONDS`` runs eight of them beside the one that switches, and prints one JSON
document. With ``launched`` behind it the kernels are those of :mod:`tests.launch_stand_in`, repeated from plans. Now
and then the threads are held at a lock, where entries can be removed, and let go while the next are made. A wrong
result is an assertion; a use of freed memory ends the process.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import torch
from tests.dispatch_tables import KERNELS, tables
from tests.launch_stand_in import KERNELS as LAUNCH_KERNELS
from tests.launch_stand_in import stand_in_driver

import opsmith

THREADS = 8
#: For which it goes on until entries were removed.
MOST_MORE_S = 60.0
#: Whole numbers, so that kernels and eager agree to the last bit.
X = torch.arange(-8, 8, dtype=torch.float64).reshape(4, 4)
Y = X.t().contiguous() + 3


class Crew:
    """The computing threads, and the lock at which they wait while they are held."""

    def __init__(self) -> None:
        self.calls = [0] * THREADS
        self.failed: list[str] = []
        self._free, self._stop = threading.Event(), threading.Event()
        self._free.set()
        self._at_lock = 0
        self._counting = threading.Lock()
        self._threads = [threading.Thread(target=self._compute, args=(number,)) for number in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def hold(self) -> None:
        """Return when every thread waits."""
        self._free.clear()
        while self._at_lock < THREADS and not self.failed:
            time.sleep(0.001)
        time.sleep(0.005)  # From the count to the lock.

    def let_go(self) -> None:
        """Go on."""
        self._free.set()

    def stop(self) -> None:
        """End the threads."""
        self._stop.set()
        self._free.set()
        for thread in self._threads:
            thread.join()

    def _compute(self, number: int) -> None:
        try:
            while not self._stop.is_set() and not self.failed:
                if not self._free.is_set():
                    with self._counting:
                        self._at_lock += 1
                    self._free.wait()
                    with self._counting:
                        self._at_lock -= 1
                work()
                self.calls[number] += 1
        except BaseException as exc:  # noqa: BLE001 - told by the main thread
            self.failed.append(repr(exc))


def work() -> None:
    """Every form of call, forward and backward, checked against values made without kernels."""
    assert torch.equal(SUM, X + Y)
    assert torch.equal(SUM, X.clone().add_(Y))
    assert torch.equal(SUM, torch.add(X, Y, out=torch.zeros(4, 4, dtype=torch.float64)))
    assert torch.equal(PRODUCT, X @ Y)
    assert torch.equal(HALVES, X.half() * 2.5)
    leaf = X.clone().requires_grad_()
    torch.relu(leaf.t()).mul(Y).sum([0, 1]).backward()
    assert leaf.grad is not None
    assert torch.equal(GRADIENT, leaf.grad)


SUM, PRODUCT, HALVES = X + Y, X @ Y, X.half() * 2.5
GRADIENT = torch.where(X > 0, Y.t(), 0.0)


def main(seconds: float, kernels: Path) -> None:
    """Switch for so long, and until entries were removed; then check that nothing is left."""
    before = tables()
    crew = Crew()
    draw, switched, removed, served, planned = random.Random(0), 0, 0, 0, 0
    end = time.monotonic() + seconds
    # On a busy machine it takes longer until the threads are held, and the entries removed, for the first time.
    while not crew.failed and (time.monotonic() < end or (not removed and time.monotonic() < end + MOST_MORE_S)):
        opsmith.enable(kernels, ops=draw.choice([None, "add.Tensor", "mm,mul.Tensor,relu"]))
        time.sleep(draw.random() * 0.02)
        with opsmith.enabled(kernels, ops="relu"):
            time.sleep(draw.random() * 0.002)
        served += opsmith.active().calls
        planned += sum(op.planned for op in opsmith.active().ops)
        if draw.random() < 0.1:
            crew.hold()
        opsmith.disable()
        removed += not opsmith.active().registered
        crew.let_go()
        switched += 1
    crew.stop()
    opsmith.disable()
    print(  # noqa: T201 - what the test reads
        json.dumps(
            {
                "rounds": sum(crew.calls),
                "switched": switched,
                "removed": removed,
                "served": served,
                "planned": planned,
                "failed": crew.failed,
                "tables_restored": before == tables(),
            }
        )
    )


if __name__ == "__main__":
    launched = sys.argv[2:] == ["launched"]
    with stand_in_driver() if launched else nullcontext():
        main(float(sys.argv[1]), LAUNCH_KERNELS if launched else KERNELS)
