"""Programs that run in forks of one process, which has imported what would take each of them longest."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Ended(NamedTuple):
    """Exit status and output, errors included, of a program."""

    status: int
    output: str


class Forks:
    """A process that runs programs one after another, each in a fork of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, code: str, *arguments: str, **variables: str) -> Ended:
        """Run a program with these arguments, and with variables of its environment besides."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([code, arguments, variables]) + "\n")
        self._process.stdin.flush()
        return Ended(*json.loads(self._process.stdout.readline()))


@contextlib.contextmanager
def forks_of(*modules: str, **variables: str) -> Iterator[Forks]:
    """A process that has imported these modules, in the root of the project."""
    command, environment = [sys.executable, "-m", "tests.forks", *modules], {**os.environ, **variables}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield Forks(process)


def _run(code: str, arguments: list[str], output: int) -> int:
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    sys.argv = ["-c", *arguments]
    status = 0
    try:
        exec(code, {"__name__": "__main__"})
    except SystemExit as exc:
        status = int(exc.code or 0)
    except BaseException:  # noqa: BLE001 - a program may raise anything
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    return status


def _serve() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        code, arguments, variables = json.loads(line)
        with tempfile.TemporaryFile() as output:
            child = os.fork()
            if not child:
                os.environ |= variables
                os._exit(_run(code, arguments, output.fileno()))
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            sys.stdout.write(json.dumps([status, output.read().decode()]) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    _serve()
