"""Which programs a worker may start, and how a judge answers who wants to start one."""

from __future__ import annotations

import errno
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opsmith.runner.sandbox import seccomp
from opsmith.runner.sandbox.kernel_calls import forgo_privileges
from opsmith.runner.sandbox.layers import Layer, probe
from opsmith.runner.sandbox.programs import refusal
from opsmith.runner.sandbox.questions import Gate

NOW_NS = time.time_ns()


@pytest.mark.parametrize("name", ["gcc", "g++", "as", "ld", "sh", "ninja"])
def test_what_builds_may_be_started(name: str) -> None:
    """By the file that links lead to: `gcc` is `x86_64-linux-gnu-gcc-12` on some machines."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name} here")
    assert refusal(os.path.realpath(path), (), NOW_NS) is None


def program(folder: Path, name: str) -> str:
    """A file of that name that can be executed."""
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "x86_64-linux-gnu-gcc-12",
            "clang-17",
            "x86_64-conda-linux-gnu-cc",
            "cc1plus",
            "collect2",
            "ld.gold",
            "ptxas",
        ),
        *("ptxas-blackwell", "cicc", "cudafe++", "nvcc", "llvm-ar-17", "dash", "which.debianutils", "ccache"),
        *("g++-real", "x86_64-linux-gnu-gcc-13.real", ".gcc-wrapped", "ld-real", "gcc.bin"),
    ],
)
def test_compilers_have_many_names(name: str, tmp_path: Path) -> None:
    """With a machine before them, and a version or what a wrapper tells them by behind."""
    assert refusal(program(tmp_path, name), (), time.time_ns() + 10**10) is None


@pytest.mark.parametrize("name", ["python3.11", "perl", "node", "java", "awk", "gcc-python", "my", "julia", "lua5.4"])
def test_interpreters_are_no_compilers(name: str, tmp_path: Path) -> None:
    """What runs programs could run torch."""
    assert f"{name} is no compiler" == refusal(program(tmp_path, name), (), time.time_ns() + 10**10)


def test_what_a_kernel_could_have_written_is_no_compiler(tmp_path: Path) -> None:
    """In this run or an earlier one, wherever it lies."""
    path = program(tmp_path, "gcc")
    assert "gcc lies where a kernel can write" == refusal(path, (tmp_path,), time.time_ns() + 10**10)
    assert "gcc was changed during the run" == refusal(path, (), NOW_NS)


@pytest.mark.parametrize(
    ("machine", "execute", "clone"), [("x86_64", (59, 322, 57, 58), 56), ("aarch64", (221, 281), 220)]
)
def test_processes_are_asked_about_and_threads_are_not(machine: str, execute: tuple[int, ...], clone: int) -> None:
    """A thread is made by the same call with another flag."""
    listing = seccomp.process_program(machine)
    assert {"ask"} == {decided(listing, number) for number in execute}
    assert "ask" == decided(listing, clone, 17)
    assert "allow" == decided(listing, clone, 0x3D0F00) == decided(listing, 0)


def decided(program: list[tuple[int, int, int, int]], number: int, first: int = 0) -> str:
    """What a filter answers to a call."""
    place = accumulator = 0
    while True:
        code, if_true, if_false, value = program[place]
        place += 1
        if code == 0x20:
            accumulator = {0: number, 16: first}[value]
        elif code == 0x06:
            return {0x7FFF0000: "allow", 0x7FC00000: "ask"}.get(value, "refuse")
        else:
            place += if_true if {0x15: accumulator == value, 0x45: bool(accumulator & value)}[code] else if_false


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., int]:
    """Runs something in a child that has to ask, and gives its exit status."""
    if probe(tmp_path)[Layer.PROGRAMS] is not None:
        pytest.skip("this machine lacks the layer")

    def run(act: Callable[[], object], *, is_open: bool = True, is_trusted: bool = False) -> int:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            _ask(theirs, act)
        theirs.close()
        _, (questions,), _, _ = socket.recv_fds(ours, 1, 1)
        gate = Gate(questions, (tmp_path,), NOW_NS)
        gate.is_open, gate.is_trusted = is_open, is_trusted
        thread = threading.Thread(target=_answer, args=(gate,), daemon=True)
        thread.start()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        thread.join(5.0)
        ours.close()
        gate.close()
        return status

    return run


def _ask(told: socket.socket, act: Callable[[], object]) -> None:
    status = 255
    try:
        forgo_privileges()
        questions = seccomp.ask_about_processes()
        socket.send_fds(told, [b"x"], [questions])
        os.close(questions)
        act()
        status = 0
    except OSError as exc:
        status = exc.errno or 254
    finally:
        os._exit(status)


def _answer(gate: Gate) -> None:
    poller = select.poll()
    poller.register(gate.descriptor, select.POLLIN)
    while ready := poller.poll(5000):
        if not ready[0][1] & select.POLLIN or not gate.answer():
            return


@pytest.mark.slow
def test_a_compiler_runs_and_python_does_not(asked: Callable[..., int]) -> None:
    """Whoever starts it, and however."""
    assert 0 == asked(lambda: subprocess.run(["sh", "-c", "gcc --version >/dev/null"], check=True))
    assert errno.EACCES == asked(lambda: os.execv(sys.executable, [sys.executable, "-c", ""]))
    assert 126 == asked(lambda: os._exit(os.waitstatus_to_exitcode(os.system(f"{sys.executable} -c ''"))))
    assert errno.EACCES == asked(lambda: os.execv("/proc/self/exe", ["python", "-c", ""]))


@pytest.mark.slow
def test_python_in_memory_or_under_another_name_does_not_run(asked: Callable[..., int], tmp_path: Path) -> None:
    """The file counts."""
    shutil.copy(os.path.realpath(sys.executable), tmp_path / "gcc")

    def in_memory() -> None:
        descriptor = os.memfd_create("gcc", 0)
        os.write(descriptor, Path(sys.executable).read_bytes())
        os.execve(descriptor, ["gcc", "-c", ""], os.environ)

    assert errno.EACCES == asked(lambda: os.execv(tmp_path / "gcc", ["gcc", "-c", ""]))
    assert asked(in_memory) in (errno.EACCES, errno.ENOENT)


@pytest.mark.slow
def test_nothing_starts_while_a_clock_runs(asked: Callable[..., int]) -> None:
    """Neither a compiler nor a copy of the process."""
    assert errno.EPERM == asked(lambda: os.execv("/bin/sh", ["sh"]), is_open=False)
    assert errno.EPERM == asked(os.fork, is_open=False)
    assert 0 == asked(lambda: threading.Thread(target=print).start(), is_open=False)


@pytest.mark.slow
def test_what_is_trusted_starts_anything(asked: Callable[..., int]) -> None:
    """Torch's own compiler starts Python."""
    assert 0 == asked(lambda: subprocess.run([sys.executable, "-c", ""], check=True), is_trusted=True)
