"""A server at a Unix socket, beside whatever else this process does."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """What a stranger sends, or breaks off, is no error of ours."""


@contextlib.contextmanager
def serving(path: Path, handler: type[socketserver.BaseRequestHandler]) -> Iterator[None]:
    """Have a handler answer each connection to a socket at ``path``, in a thread of its own, until the end."""
    with _Server(str(path), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
