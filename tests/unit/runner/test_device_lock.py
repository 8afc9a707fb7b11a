"""One device, many runs: who judges shares it, who times has it alone."""

from __future__ import annotations

import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from opsmith.errors import BadInput
from opsmith.runner.machine import device_lock
from opsmith.runner.machine.device_lock import DeviceLock, default_folder

#: Long enough for a process that is free to go on, short enough to wait for one that is not.
SOON_S = 0.3
LONG_S = 20.0

HOLDER = """
import sys
from pathlib import Path
from opsmith.runner.machine.device_lock import DeviceLock

lock = DeviceLock(Path(sys.argv[1]), "cpu")
print("asks", flush=True)
with getattr(lock, sys.argv[2])():
    print("holds", flush=True)
    sys.stdin.read()
"""


class Holder:
    """Another process that asks for the lock and holds it until it is told to let go."""

    def __init__(self, folder: Path, how: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self._says("asks", LONG_S)

    def holds(self, within_s: float = LONG_S) -> bool:
        """Whether it gets the lock in time."""
        return self._says("holds", within_s)

    def let_go(self) -> None:
        """Let it end."""
        self.process.communicate(timeout=LONG_S)

    def _says(self, word: str, within_s: float) -> bool:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], within_s)[0]:
            return False
        return word == self.process.stdout.readline().decode().strip()


Start = Callable[[str], Holder]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes that ask for the lock in one folder, and ends them."""
    with ExitStack() as started:

        def start(how: str) -> Holder:
            holder = Holder(tmp_path, how)
            started.enter_context(holder.process)
            started.callback(holder.process.kill)
            return holder

        yield start


@pytest.mark.parametrize(
    ("first", "second"), [("exclusive", "exclusive"), ("exclusive", "shared"), ("shared", "exclusive")]
)
def test_nothing_goes_on_beside_a_run_that_times(start: Start, first: str, second: str) -> None:
    """Neither another one's timing nor its judging, in whichever order they come."""
    one = start(first)
    assert one.holds()
    other = start(second)
    assert not other.holds(SOON_S)
    one.let_go()
    assert other.holds()


def test_runs_that_judge_do_so_at_the_same_time(start: Start) -> None:
    """A lock that let one in at a time would cost them all the parallelism of the device."""
    holders = [start("shared") for _ in range(3)]
    assert [True] * 3 == [holder.holds() for holder in holders]


def test_a_judging_run_queues_behind_one_that_waits_to_time(start: Start) -> None:
    """Otherwise a third run, and a fourth, keep the device shared for ever."""
    reader = start("shared")
    assert reader.holds()
    writer = start("exclusive")
    assert not writer.holds(SOON_S)
    late = start("shared")
    assert not late.holds(SOON_S)
    reader.let_go()
    assert writer.holds()
    assert not late.holds(SOON_S)
    writer.let_go()
    assert late.holds()


def test_a_stream_of_judging_threads_does_not_starve_one_that_times(tmp_path: Path) -> None:
    """There is no moment at which nobody judges, and still the clock gets its turn."""
    lock = DeviceLock(tmp_path, "cpu")
    timed = threading.Event()

    def judge() -> None:
        while not timed.is_set():
            with lock.shared():
                time.sleep(0.02)

    threads = [threading.Thread(target=judge, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()

    def measure() -> None:
        for _ in range(5):
            with lock.exclusive():
                pass

    writer = threading.Thread(target=measure, daemon=True)
    writer.start()
    writer.join(5.0)
    starved = writer.is_alive()
    timed.set()
    for thread in (*threads, writer):
        thread.join(LONG_S)
    assert not starved


@pytest.mark.parametrize("how", ["shared", "exclusive"])
def test_a_killed_process_frees_the_lock(start: Start, how: str) -> None:
    """A run that was killed must not stop every later one until somebody removes a file."""
    holder = start(how)
    assert holder.holds()
    waiting = start("exclusive")
    assert not waiting.holds(SOON_S)
    holder.process.kill()
    assert waiting.holds()


def test_a_process_that_is_killed_while_it_waits_blocks_nobody(start: Start) -> None:
    """It holds the turnstile then, which everybody passes."""
    reader = start("shared")
    assert reader.holds()
    writer = start("exclusive")
    assert not writer.holds(SOON_S)
    writer.process.kill()
    assert start("shared").holds()


def test_threads_of_one_process_exclude_each_other_too(tmp_path: Path) -> None:
    """A judge has a thread for each slot, and one object for all of them."""
    lock = DeviceLock(tmp_path, "cpu")
    inside: list[str] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            with lock.exclusive():
                inside.append(str(number))
                time.sleep(0.001)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert [1] * 80 == most


def test_devices_have_locks_of_their_own(tmp_path: Path) -> None:
    """Two devices of one machine can time at once."""
    with DeviceLock(tmp_path, "GPU-1").exclusive(), DeviceLock(tmp_path, "GPU-2").exclusive():
        pass


def test_an_error_frees_the_lock(tmp_path: Path) -> None:
    """The next case is judged by the same process."""
    lock = DeviceLock(tmp_path, "cpu")
    with pytest.raises(ZeroDivisionError), lock.exclusive():
        raise ZeroDivisionError
    with lock.exclusive():
        pass


def test_a_process_forked_while_it_is_held_does_not_keep_it(tmp_path: Path) -> None:
    """A child between its fork and its exec has every file of its parent's open."""
    lock = DeviceLock(tmp_path, "cpu")
    script = "import sys; sys.stdin.read()"
    with lock.exclusive():
        held = [int(opened.name) for opened in Path("/proc/self/fd").iterdir() if _is_in(opened, tmp_path)]
        child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, pass_fds=held)
    again = threading.Thread(target=_pass_through, args=(lock,), daemon=True)
    again.start()
    again.join(2.0)
    kept = again.is_alive()
    child.communicate(timeout=LONG_S)
    assert 1 == len(held)
    assert not kept


def _is_in(opened: Path, folder: Path) -> bool:
    try:
        return opened.readlink().is_relative_to(folder)
    except FileNotFoundError:
        return False  # What listed the folder has been closed.


def test_a_long_wait_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits must not look hung; that it waits in two queues, one after another, is nobody's concern."""
    monkeypatch.setattr(device_lock, "PATIENCE_S", 0.05)
    told: list[float] = []
    with DeviceLock(tmp_path, "cpu").exclusive():
        waiters = [
            threading.Thread(target=_pass_through, args=(DeviceLock(tmp_path, "cpu"), 0.3)),
            threading.Thread(target=_pass_through, args=(DeviceLock(tmp_path, "cpu", waiting=told.append),)),
        ]
        for waiter in waiters:
            waiter.start()
            time.sleep(0.2)
    for waiter in waiters:
        waiter.join(LONG_S)
    assert 1 == len(told)
    assert 0.05 <= told[0] < 0.2


def test_a_short_wait_is_not_told(tmp_path: Path) -> None:
    """Runs that take turns case by case wait all the time."""
    told: list[float] = []
    lock = DeviceLock(tmp_path, "cpu", waiting=told.append)
    with lock.exclusive():
        waiter = threading.Thread(target=_pass_through, args=(lock,))
        waiter.start()
        time.sleep(0.05)
    waiter.join(LONG_S)
    time.sleep(device_lock.PATIENCE_S)
    assert [] == told


def _pass_through(lock: DeviceLock, held_s: float = 0.0) -> None:
    with lock.exclusive():
        time.sleep(held_s)


def test_the_folder_lies_beside_the_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs of a user find it, whatever their temporary folders are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert tmp_path / "cache" / "opsmith" / "locks" == default_folder() == default_folder()
    assert default_folder().is_dir()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way out."""
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(BadInput, match="set XDG_CACHE_HOME"):
        default_folder()
