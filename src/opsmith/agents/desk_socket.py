"""A desk behind a Unix socket: one JSON object a line in, one out."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from opsmith.agents.desk import MOST_SOURCE_CHARACTERS, Desk
from opsmith.agents.unix_server import serving
from opsmith.errors import BadInput

#: Of a line: characters may be escaped.
_MOST_BYTES = 8 * MOST_SOURCE_CHARACTERS
#: Requests that wait for their turn; an agent's processes may ask side by side.
_MOST_WAITING = 16
#: Seconds in which a request has to be there.
_SENT_S = 30.0


class _Request(msgspec.Struct, frozen=True):
    tool: str
    source: str = ""


@contextlib.contextmanager
def listening(desk: Desk, path: Path) -> Iterator[None]:
    """Answer the requests that come to a Unix socket at ``path``, of at most some hundred bytes."""
    waiting = threading.BoundedSemaphore(_MOST_WAITING)

    class Handler(socketserver.StreamRequestHandler):
        timeout = _SENT_S

        def handle(self) -> None:
            if not waiting.acquire(blocking=False):
                return self._say({"text": "refused: too many requests at once", "refused": True, "accepted": None})
            try:
                with contextlib.suppress(OSError):
                    self._say(_answered(desk, self.rfile.readline(_MOST_BYTES)))
            finally:
                waiting.release()
            return None

        def _say(self, answer: dict[str, object]) -> None:
            with contextlib.suppress(OSError):
                self.wfile.write(msgspec.json.encode(answer) + b"\n")

    with contextlib.ExitStack() as stack:
        stack.callback(desk.close)
        stack.enter_context(serving(path, Handler))
        yield


def _answered(desk: Desk, line: bytes) -> dict[str, object]:
    try:
        asked = msgspec.json.decode(line, type=_Request)
    except msgspec.DecodeError:
        return {"text": "refused: this is no request", "refused": True, "accepted": None}
    try:
        found = desk.answer(asked.tool, asked.source)
    except BadInput as exc:
        return {"text": f"refused: {exc}", "refused": True, "accepted": None}
    return {"text": found.text, "refused": found.refused, "accepted": found.accepted}
