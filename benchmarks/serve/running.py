"""A server in a process of its own, which may be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

START_S = 180.0


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Server:
    """``opsmith serve`` on loopback.

    Args:
        data: its folder.
        options: further words of its command line.
        log: where its output goes; beside its folder if None.
        environment: its variables; those of this process if None.
    """

    def __init__(
        self, data: Path, *options: str, log: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log or data.with_name(f"{data.name}.log")
        self.data, self.environment = data, None if environment is None else dict(environment)
        program = "from opsmith.cli.main import main; main()"
        self._command = [
            sys.executable,
            "-c",
            program,
            "serve",
            "--data",
            str(data),
            "--port",
            str(self.port),
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            RuntimeError: it ended, or did not answer in time.
        """
        with self._lock, self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own
                self._command, stdout=log, stderr=log, start_new_session=True, env=self.environment
            )
            deadline = time.monotonic() + START_S
            while not self._answers():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start: {self.log.read_text()[-2000:]}")
                time.sleep(0.1)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, which it was not told to."""
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL, and nothing else; what it started has to notice."""
        with self._lock:
            assert self._process is not None
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        with self._lock:
            assert self._process is not None
            self._process.terminate()
            return self._process.wait(timeout=60)

    def _answers(self) -> bool:
        assert self._process is not None
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                # The port is held from the start; requests are answered once everything is ready.
                connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                connection.settimeout(1)
                return b"200" in connection.recv(64)
        except OSError:
            return False
