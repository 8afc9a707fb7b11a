"""Processes that prepare beside each other and are measured alone."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsmith.runner.machine.device_lock import DeviceLock
from opsmith.runner.processes.isolated import NoAnswer
from opsmith.runner.processes.turns import Turn, Turns

#: How long a turn of these tests takes.
TURN_S = 0.4


def beats(turn: Turn, folder: str) -> bytes:
    """Append the time to a file every few milliseconds, in a child as well; say when the turn was."""
    name = Path(folder) / str(os.getpid())
    script = (
        f"import time\nwhile True:\n    open('{name}.child', 'a').write(f'{{time.monotonic()}}\\n'); time.sleep(0.005)"
    )
    child = subprocess.Popen([sys.executable, "-c", script])
    until = time.monotonic() + 1.5
    with name.open("a") as file:
        while time.monotonic() < until:
            print(time.monotonic(), file=file, flush=True)
            time.sleep(0.005)
    turn.take()
    child.kill()
    began = time.monotonic()
    time.sleep(TURN_S)
    return f"{os.getpid()} {began} {time.monotonic()}".encode()


def says(_turn: Turn, word: str) -> bytes:
    """Answer without a turn; some words end it otherwise."""
    if word == "dies":
        os._exit(3)
    if word == "hangs":
        time.sleep(600)
    return word.encode()


def hangs_in_its_turn(turn: Turn, word: str) -> bytes:
    """Or answers."""
    turn.take()
    time.sleep(600 if word == "hangs" else 0)
    return word.encode()


def waits(turn: Turn, seconds: float) -> bytes:
    """Be busy before the turn, measured by the process's own time, then hold the turn."""
    while time.process_time() < seconds:
        pass
    turn.take()
    time.sleep(2.0)
    return b"done"


@pytest.fixture
def lock(tmp_path: Path) -> DeviceLock:
    """Of a device of this test."""
    return DeviceLock(tmp_path, "device")


def turns(lock: DeviceLock, *, jobs: int, timeout_s: float = 60.0) -> Turns:
    """With processes that fork from a small one."""
    return Turns(multiprocessing.get_context("forkserver"), lock, jobs=jobs, timeout_s=timeout_s)


def stamps(folder: Path) -> Iterator[float]:
    """When any of the processes, or their children, ran."""
    for file in folder.iterdir():
        yield from (float(line) for line in file.read_text().splitlines()[:-1])


@pytest.mark.slow
def test_nobody_else_runs_during_a_turn(tmp_path: Path, lock: DeviceLock) -> None:
    """Neither the other processes nor those that they started; between turns all do."""
    folder = tmp_path / "beats"
    folder.mkdir()
    answers = [answer for _, answer in turns(lock, jobs=3).answers(beats, [str(folder)] * 4)]
    times = sorted(stamps(folder))
    for answer in answers:
        assert isinstance(answer, bytes)
        pid, began, ended = answer.decode().split()
        assert TURN_S <= float(ended) - float(began)
        grace = 0.05  # A process that was running gets the signal a moment later.
        others = [time for time in times if float(began) + grace < time < float(ended) - grace]
        assert not others, pid
    assert len(times) > 4 * 50


@pytest.mark.slow
def test_one_that_dies_or_hangs_costs_itself_only(lock: DeviceLock) -> None:
    """Each question has its answer, or why it has none."""
    words = ["one", "dies", "hangs", "two"]
    found = {words[number]: answer for number, answer in turns(lock, jobs=2, timeout_s=5).answers(says, words)}
    assert (b"one", b"two") == (found["one"], found["two"])
    assert "its process ended with status 3" == str(found["dies"])
    assert "it took longer than 5 s; --timeout gives it more" == str(found["hangs"])


@pytest.mark.slow
def test_a_turn_that_does_not_end_is_ended(lock: DeviceLock) -> None:
    """The next one begins then."""
    words = ["hangs", "answers"]
    found = {
        words[number]: answer for number, answer in turns(lock, jobs=1, timeout_s=2).answers(hangs_in_its_turn, words)
    }
    assert isinstance(found["hangs"], NoAnswer)
    assert b"answers" == found["answers"]


@pytest.mark.slow
def test_standing_still_is_not_charged(lock: DeviceLock) -> None:
    """Three turns of two seconds each, and a question that may take four in all."""
    found = [answer for _, answer in turns(lock, jobs=4, timeout_s=6).answers(waits, [0.1, 0.1, 0.1, 1.0])]
    assert [b"done"] * 4 == found


@pytest.mark.slow
def test_the_device_is_shared_while_processes_prepare_and_held_alone_in_a_turn(
    tmp_path: Path, lock: DeviceLock
) -> None:
    """Another run that judges is let in between; one that times is not, during a turn."""
    folder = tmp_path / "beats"
    folder.mkdir()
    rounds = turns(lock, jobs=1).answers(beats, [str(folder)] * 2)
    next(rounds)  # The lock is held shared: what is asked next is not prepared yet.
    with DeviceLock(tmp_path, "device").shared():
        pass
    rounds.close()  # type: ignore[attr-defined]
    with DeviceLock(tmp_path, "device").exclusive():
        pass
