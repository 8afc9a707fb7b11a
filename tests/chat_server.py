"""A server on loopback that speaks the chat completions protocol and misbehaves as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self


class Said(NamedTuple):
    """What the server does with one request.

    Attributes:
        text: of the reply.
        status: other than 200 is an error with ``text`` for its body.
        finish: why the reply ends; None breaks the stream off.
        usage: (input, output) tokens, or None to say nothing.
        wait_s: before anything is sent.
        retry_after: header of an error.
        streams: in pieces, or the whole document.
        raw: sent as it is for a body, whatever that is.
        kind: its content type.
        encoding: its content encoding.
        kept_alive_s: for so long comments are sent before the reply.
        drops: closes the connection without an answer.
    """

    text: str = ""
    status: int = 200
    finish: str | None = "stop"
    usage: tuple[int, int] | None = (10, 10)
    wait_s: float = 0.0
    retry_after: str | None = None
    streams: bool = True
    raw: bytes | None = None
    kind: str | None = None
    encoding: str | None = None
    kept_alive_s: float = 0.0
    drops: bool = False


Script = Callable[[dict[str, Any], int], Said]


class ChatServer:
    """Serves a script; a context manager.

    Attributes:
        bodies: of the requests, in the order in which they came.
        keys: their idempotency keys.
        url: for ``OPENAI_BASE_URL``.

    Args:
        script: given a request's body and how often that body came before, what to do.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.answered: list[str] = []
        self._seen: dict[str, int] = {}
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                data = self.rfile.read(size)
                if len(data) == size:  # Else who asked is dead.
                    server.serve(self, json.loads(data))

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._http.shutdown()
        self._http.server_close()

    def serve(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        """Answer one request as the script says."""
        text = json.dumps(body, sort_keys=True)
        with self._lock:
            before = self._seen.get(text, 0)
            self._seen[text] = before + 1
            self.bodies.append(body)
            self.keys.append(handler.headers["Idempotency-Key"])
        said = self.script(body, before)
        time.sleep(said.wait_s)
        if said.drops:
            handler.close_connection = True
            return
        if said.status == 200:
            with self._lock:
                self.answered.append(text)
        try:
            _send(handler, said)
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True


def _send(handler: BaseHTTPRequestHandler, said: Said) -> None:
    handler.send_response(said.status)
    if said.retry_after is not None:
        handler.send_header("Retry-After", said.retry_after)
    if said.status != 200 or not said.streams or said.raw is not None:
        data = said.raw if said.raw is not None else _whole(said)
        handler.send_header("Content-Type", said.kind or "application/json")
        if said.encoding is not None:
            handler.send_header("Content-Encoding", said.encoding)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
        return
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    ends = time.monotonic() + said.kept_alive_s
    while time.monotonic() < ends:
        handler.wfile.write(b": keep-alive\n\n")
        time.sleep(0.01)
    for place in range(0, len(said.text), 100):
        _event(handler, {"choices": [{"delta": {"content": said.text[place : place + 100]}}]})
    if said.finish is None:
        return
    _event(handler, {"choices": [{"delta": {}, "finish_reason": said.finish}]})
    if said.usage is not None:
        _event(handler, {"choices": [], "usage": _usage(said.usage)})
    handler.wfile.write(b"data: [DONE]\n\n")


def _event(handler: BaseHTTPRequestHandler, document: dict[str, Any]) -> None:
    handler.wfile.write(f"data: {json.dumps(document)}\n\n".encode())


def _whole(said: Said) -> bytes:
    if said.status != 200:
        return json.dumps({"error": {"message": said.text}}).encode()
    choice = {"message": {"role": "assistant", "content": said.text}, "finish_reason": said.finish}
    document: dict[str, Any] = {"choices": [choice]}
    if said.usage is not None:
        document["usage"] = _usage(said.usage)
    return json.dumps(document).encode()


def _usage(usage: tuple[int, int]) -> dict[str, int]:
    return {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
