"""Questions of the kernel about processes that a worker wants to make, and their answers (``seccomp_unotify(2)``).

The answer "go on" is given for what the question said. Another thread of the worker could change the path before the
kernel reads it again, so it is looked at afterwards what the process has become.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from opsmith.runner.sandbox.programs import refusal
from opsmith.runner.sandbox.seccomp import EXECUTING

#: ``struct seccomp_notif``: id, process, flags, then number, architecture, place and arguments of the call.
_QUESTION = struct.Struct("<QIIiIQ6Q")
#: ``struct seccomp_notif_resp``: id, value, error, flags.
_ANSWER = struct.Struct("<QqiI")
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_GO_ON = 1
_LONGEST_PATH_BYTES = 4096
_OF_ITSELF = "/proc/self/"
#: What a program takes to begin, and how often it is looked whether it has.
_BEGINNING_S, _LOOK_S = 5e-3, 2e-4


class Question(NamedTuple):
    """A call that waits for its answer.

    Attributes:
        number: by which the answer is matched.
        pid: the process that calls.
        call: number of the call.
        arguments: of the call.
    """

    number: int
    pid: int
    call: int
    arguments: tuple[int, ...]


class Gate:
    """Answers for the processes of one worker.

    Args:
        descriptor: of the questions; it is closed with the gate.
        written: folders that workers write to.
        since_ns: when the first process of this run began.

    Attributes:
        is_open: processes may be made: a kernel is loaded, or answers a call that no clock runs for.
        is_trusted: any program may be started.
        room: so many processes may still be made; who counts those that live sets it.
        is_full: more were asked for. Whoever asks from then on gets no answer: all of them are to be killed.
    """

    def __init__(self, descriptor: int, written: Sequence[Path], since_ns: int) -> None:
        self.descriptor = descriptor
        self.is_open = True
        self.is_trusted = False
        self.room = sys.maxsize
        self.is_full = False
        self._written, self._since_ns = written, since_ns
        self._executing = EXECUTING[os.uname().machine]

    def answer(self) -> bool:
        """Answer the next question; False if none can come any more."""
        memory = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(self.descriptor, _RECEIVE, memory)
        except OSError as exc:
            return exc.errno in (errno.EINTR, errno.ENOENT)  # The process died, or gave up, before this was read.
        number, pid, _, call, _, _, *arguments = _QUESTION.unpack(memory)
        self._decide(Question(number, pid, call, tuple(arguments)))
        return True

    def _decide(self, question: Question) -> None:
        if not self.is_open:
            self._send(question, errno.EPERM)
        elif question.call not in self._executing:
            self.is_full = self.is_full or self.room <= 0
            self.room -= 1
            if not self.is_full:  # Else it waits until it is killed, and takes no processor from others meanwhile.
                self._send(question, 0)
        elif self.is_trusted:
            self._send(question, 0)
        else:
            path = self._program(question)
            if path is None or refusal(path, self._written, self._since_ns) is not None:
                self._send(question, errno.EACCES if path is not None else errno.ENOENT)
            else:
                before = running_program(question.pid)
                self._send(question, 0)
                _stop_another(question.pid, before, path)

    def _send(self, question: Question, error: int) -> None:
        answer = _ANSWER.pack(question.number, 0, -error, 0 if error else _GO_ON)
        with contextlib.suppress(OSError):  # The process is gone.
            fcntl.ioctl(self.descriptor, _SEND, answer)

    def _program(self, question: Question) -> str | None:
        """The file that is to be run, without symbolic links; None if there is none."""
        place = self._executing[question.call]
        try:
            path = _text(question.pid, question.arguments[place])
            fcntl.ioctl(self.descriptor, _IS_VALID, struct.pack("<Q", question.number))  # It was that process's memory.
            own = f"/proc/{question.pid}"
            if path.startswith(_OF_ITSELF):
                path = f"{own}/{path.removeprefix(_OF_ITSELF)}"
            if place == 1 and not path.startswith("/"):
                folder = struct.unpack("<i", struct.pack("<Q", question.arguments[0])[:4])[0]
                path = f"{own}/fd/{folder}/{path}".rstrip("/") if folder >= 0 else f"{own}/cwd/{path}"
            elif not path.startswith("/"):
                path = f"{own}/cwd/{path}"
            return str(Path(path).resolve(strict=True))
        except (OSError, RuntimeError, ValueError):
            return None

    def close(self) -> None:
        """Whatever is still asked is refused by the kernel."""
        os.close(self.descriptor)


def _text(pid: int, address: int) -> str:
    """A text in another process's memory."""
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Not past the page that it lies in: the next one may not be there.
        first = os.pread(memory, 4096 - address % 4096, address)
        content = first if b"\0" in first else first + os.pread(memory, _LONGEST_PATH_BYTES, address + len(first))
    finally:
        os.close(memory)
    return os.fsdecode(content.partition(b"\0")[0])


def running_program(pid: int) -> str | None:
    """The file that a process executes; None if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 - looked at again and again
    except OSError:
        return None


def _stop_another(pid: int, before: str | None, expected: str) -> None:
    """Kill a process that has become another program than it asked for; a script becomes what interprets it."""
    if _is_script(expected):
        return
    deadline = time.monotonic() + _BEGINNING_S
    while (now := running_program(pid)) == before and now != expected and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    if now not in (None, before, expected):
        with contextlib.suppress(OSError):  # It is gone, or somebody else's by now.
            os.kill(pid, signal.SIGKILL)


def _is_script(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            return file.read(2) == b"#!"
    except OSError:
        return False  # A program may be executable and not readable.
