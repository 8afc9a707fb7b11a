"""Processes that prepare beside each other and measure one at a time, while all others stand still.

Compiling a model takes many seconds of one core, measuring it less than one second of a machine that has to be quiet.
So a process says when it is ready, and gets its turn: all other processes of the same round are stopped (``SIGSTOP``,
with their compilers) until it has answered. What they have queued on the device ends by itself while it warms up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, NamedTuple, TypeVar

from opsmith.runner.machine.device_lock import DeviceLock
from opsmith.runner.processes.isolated import ENDING_TIMEOUT_S, NoAnswer, too_long
from opsmith.runner.sandbox.kernel_calls import die_with_parent

_STARTED, _READY, _GO = b"started", b"ready", b"go"

Question = TypeVar("Question")


class Turn:
    """What a process of a round has of its turn."""

    def __init__(self, judge: Connection) -> None:
        self._judge = judge

    def take(self) -> None:
        """Wait until no other process of the round runs."""
        self._judge.send_bytes(_READY)
        self._judge.recv_bytes()


#: Answers one question, in a process of its own; it may take its turn once.
Serve = Callable[[Turn, Any], bytes]


class Answer(NamedTuple):
    """What became of one question.

    Attributes:
        number: its place among the questions.
        answer: what its process returned, or why it returned nothing.
    """

    number: int
    answer: bytes | NoAnswer


class _Running:
    """A process with its question. Its deadline moves by as long as it stands still."""

    def __init__(self, number: int, process: ForkServerProcess, connection: Connection, deadline: float) -> None:
        self.number = number
        self.process = process
        self.connection = connection
        self.deadline = deadline

    @property
    def left_s(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        with contextlib.suppress(ProcessLookupError):  # It has died; its connection says so.
            os.killpg(self.process.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.join()
        self.connection.close()


class Turns:
    """Rounds of such processes on one device.

    Args:
        context: forks the processes.
        lock: held shared while processes prepare, and exclusively during a turn.
        jobs: processes at a time.
        timeout_s: of one question, without the time that its process stands still.
    """

    def __init__(self, context: ForkServerContext, lock: DeviceLock, *, jobs: int, timeout_s: float) -> None:
        self._context = context
        self._lock = lock
        self._jobs = jobs
        self._timeout_s = timeout_s

    def answers(self, serve: Serve, questions: Iterable[Question]) -> Iterator[Answer]:
        """Have ``serve(turn, question)`` run for each; yields in the order in which they end.

        A question is taken from the iterable when there is room for its process.
        """
        waiting = enumerate(questions)
        running: list[_Running] = []
        with contextlib.ExitStack() as ending, _Held(self._lock) as held:
            ending.callback(_end, running)
            while True:
                room = self._jobs - len(running)
                running += [self._start(serve, *question) for question in islice(waiting, room)]
                if not running:
                    return
                heard = wait([one.connection for one in running], min(one.left_s for one in running))
                for one in list(running):
                    if one.connection in heard:
                        answer = self._hear(one, [other for other in running if other is not one], held)
                    else:
                        answer = None if one.left_s else too_long(self._timeout_s)
                    if answer is not None:
                        running.remove(one)
                        one.end()
                        yield Answer(one.number, answer)

    def _start(self, serve: Serve, number: int, question: object) -> _Running:
        ours, its = self._context.Pipe()
        process = self._context.Process(target=_answer, args=(its, serve, question), daemon=True)
        process.start()
        its.close()
        with contextlib.suppress(EOFError):  # It has died; the next message will not come either.
            ours.recv_bytes()  # From here on it is a group of its own, which can be stopped.
        return _Running(number, process, ours, time.monotonic() + self._timeout_s)

    def _hear(self, one: _Running, others: Sequence[_Running], held: _Held) -> bytes | NoAnswer | None:
        """What a process says: its answer, or, once, that it is ready, which is no answer yet."""
        try:
            message = one.connection.recv_bytes()
            if message != _READY:
                one.process.join(ENDING_TIMEOUT_S)
                return message
            with _standing_still(others), held.alone():
                one.connection.send_bytes(_GO)
                if not one.connection.poll(one.left_s):
                    return too_long(self._timeout_s)
        except (EOFError, ConnectionError):
            one.process.join()
            return NoAnswer(f"its process ended with status {one.process.exitcode}")
        return None


class _Held(contextlib.ExitStack):
    """The device's lock, held shared but for turns."""

    def __init__(self, lock: DeviceLock) -> None:
        super().__init__()
        self._lock = lock
        self.enter_context(lock.shared())

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        self.close()
        with self._lock.exclusive():
            yield
        self.enter_context(self._lock.shared())


@contextlib.contextmanager
def _standing_still(processes: Sequence[_Running]) -> Iterator[None]:
    since = time.monotonic()
    for process in processes:
        process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.deadline += time.monotonic() - since
            process.signal(signal.SIGCONT)


def _end(processes: Sequence[_Running]) -> None:
    for process in processes:
        process.end()


def _answer(judge: Connection, serve: Serve, question: object) -> None:
    """Answer one question in this process, which ends with it."""
    os.setpgid(0, 0)
    die_with_parent(signal.SIGKILL)
    judge.send_bytes(_STARTED)
    judge.send_bytes(serve(Turn(judge), question))
