"""A proxy through which an agent reaches the hosts that the user names, and no other.

The agent's network has no device but the loopback. What it sends to a port there is carried to a Unix socket, at which
this proxy listens outside. It understands ``CONNECT`` and requests with a whole address, as every HTTP client sends
them to a proxy; it looks names up itself, and follows no redirection.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from opsmith.agents.unix_server import serving
from opsmith.errors import BadInput

_MOST_HEAD_BYTES, _BLOCK_BYTES = 1 << 16, 1 << 16
_CONNECTING_S = 30.0
_HTTPS, _HTTP = 443, 80


class Hosts:
    """The hosts that may be reached: ``api.example.com``, ``*.example.com`` or ``10.0.0.7:8000``.

    Without a port 443 and 80 are meant.

    Raises:
        BadInput: a host is none.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._allowed: list[tuple[str, tuple[int, ...]]] = []
        for name in names:
            host, separator, port = name.rpartition(":") if ":" in name else (name, "", "")
            if not host or "/" in name or (separator and not port.isdecimal()):
                raise BadInput(f"--agent-host {name!r} is no host; give one as api.example.com or 10.0.0.7:8000")
            self._allowed.append((host.lower(), (int(port),) if port else (_HTTPS, _HTTP)))

    def __bool__(self) -> bool:
        return bool(self._allowed)

    def allow(self, host: str, port: int) -> bool:
        """Whether a port of a host may be reached."""
        host = host.lower().rstrip(".")
        return any(
            port in ports and (host == name or (name.startswith("*.") and host.endswith(name[1:])))
            for name, ports in self._allowed
        )


@contextlib.contextmanager
def proxying(hosts: Hosts, path: Path) -> Iterator[list[str]]:
    """Run the proxy at a Unix socket; gives the hosts that were refused, each once, as they come."""
    refused: list[str] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError, ValueError):
                _carry(self.request, hosts, refused)

    with serving(path, Handler):
        yield refused


def _carry(client: socket.socket, hosts: Hosts, refused: list[str]) -> None:
    """Serve one connection; raises ValueError for what is no request."""
    client.settimeout(_CONNECTING_S)
    head, rest = _head(client)
    first, _, fields = head.partition(b"\r\n")
    method, target, version = first.decode("ascii").split(" ")
    address = urlsplit(f"//{target}" if method == "CONNECT" else target)
    host, port = address.hostname or "", address.port or (_HTTPS if address.scheme == "https" else _HTTP)
    if not hosts.allow(host, port):
        if f"{host}:{port}" not in refused and len(refused) < 1000:
            refused.append(f"{host}:{port}")
        client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        return
    with socket.create_connection((host, port), _CONNECTING_S) as server:
        if method == "CONNECT":
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            kept = [field for field in fields.split(b"\r\n") if field and not _is_of_connection(field)]
            path = (address.path or "/") + (f"?{address.query}" if address.query else "")
            # One request a connection: the next one may be for another host.
            lines = [f"{method} {path} {version}".encode(), *kept, b"Connection: close", b"", b""]
            server.sendall(b"\r\n".join(lines))
        server.sendall(rest)
        _both_ways(client, server)


def _is_of_connection(field: bytes) -> bool:
    return field.partition(b":")[0].strip().lower() in {b"connection", b"proxy-connection", b"keep-alive"}


def _head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        block = client.recv(_BLOCK_BYTES)
        data += block
        if not block or len(data) > _MOST_HEAD_BYTES:
            raise ValueError("no request")
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _both_ways(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes until both sides have ended."""
    one.settimeout(None)
    other.settimeout(None)
    back = threading.Thread(target=pump, args=(other, one), daemon=True)
    back.start()
    pump(one, other)
    back.join()


def pump(source: socket.socket, target: socket.socket) -> None:
    """Carry bytes one way until the source ends or the target is gone."""
    with contextlib.suppress(OSError):
        while block := source.recv(_BLOCK_BYTES):
            target.sendall(block)
    for end, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            end.shutdown(how)
