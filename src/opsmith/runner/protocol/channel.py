"""How messages between processes are framed.

A frame is a 4-byte magic, an 8-byte big-endian length and a msgpack body. Bodies decode into the types of the
protocol and nothing else; nothing is ever unpickled. The judge relays a worker's tensors to the referee as an
undecoded :class:`msgspec.Raw`.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import struct
import time
from typing import Any

import msgspec

from opsmith.errors import ProtocolError

MAGIC = b"OPSM"


HEADER = struct.Struct(">4sQ")


#: A frame longer than this is refused before it is read.
MAX_FRAME_BYTES = 4 << 30


#: The same for a worker's: what is large in it lies in files.
MAX_REPLY_BYTES = 512 << 20


#: A body of up to this size goes out together with its header.
JOINED_BYTES = 1 << 16


#: What goes along with a descriptor: it has to be something.
_DESCRIPTOR = b"\0"


#: Taken from a socket at a time.
RECEIVE_BYTES = 1 << 20


class Channel:
    """A framed, typed message channel over a stream socket.

    Attributes:
        spin_s: how long to look for a message again and again before sleeping until one comes.
        sent_s: when the last message went out, by ``time.perf_counter``.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.spin_s = 0.0
        self.sent_s = self._received_s = 0.0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}

    def send(self, message: msgspec.Struct, timeout_s: float | None = None) -> None:
        """Send one message.

        Raises:
            TimeoutError: the other side did not take all of it within ``timeout_s``.
            OSError: the other side is gone.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        body = self._encoder.encode(message)
        header = HEADER.pack(MAGIC, len(body))
        parts = (header + body,) if len(body) <= JOINED_BYTES else (header, body)
        self.sent_s = time.perf_counter()
        for part in parts:
            self._write(part, deadline)

    @property
    def wall_us(self) -> float:
        """Microseconds from when the last message went out to when the last one was there."""
        return (self._received_s - self.sent_s) * 1e6

    def send_descriptor(self, descriptor: int | None) -> None:
        """Hand the other side a descriptor, or say that there is none, between two messages.

        Raises:
            OSError: the other side is gone.
        """
        socket.send_fds(self.sock, [_DESCRIPTOR], [] if descriptor is None else [descriptor])

    def receive_descriptor(self, timeout_s: float) -> int | None:
        """What :meth:`send_descriptor` sent.

        Raises:
            TimeoutError: nothing arrived within ``timeout_s``.
            EOFError: the other side closed the channel.
        """
        self._wait(select.POLLIN, time.monotonic() + timeout_s)
        sent, descriptors, _, _ = socket.recv_fds(self.sock, len(_DESCRIPTOR), 1)
        if not sent:
            raise EOFError("the other side closed the channel")
        return descriptors[0] if descriptors else None

    def has_unread(self) -> bool:
        """Whether bytes wait to be read."""
        try:
            return bool(self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False  # Nothing there, or nobody.

    def is_answered(self, timeout_s: float) -> bool:
        """Whether something arrives, or the other side closes the channel, within ``timeout_s``."""
        try:
            self._wait(select.POLLIN, time.monotonic() + timeout_s)
        except TimeoutError:
            return False
        return True

    def receive(self, message_type: Any, timeout_s: float | None = None, *, most_bytes: int = MAX_FRAME_BYTES) -> Any:
        """Receive one message of ``message_type`` (a struct type or a union of them).

        Raises:
            TimeoutError: nothing complete arrived within ``timeout_s``.
            EOFError: the other side closed the channel.
            ProtocolError: the bytes are no frame, or do not decode as ``message_type``.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        magic, length = HEADER.unpack(self._read_exactly(HEADER.size, deadline))
        if magic != MAGIC or length > most_bytes:
            raise ProtocolError("the bytes received are no message of this protocol")
        body = self._read_exactly(length, deadline)
        self._received_s = time.perf_counter()
        decoder = self._decoders.get(message_type)
        if decoder is None:
            decoder = self._decoders[message_type] = msgspec.msgpack.Decoder(message_type)
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise ProtocolError(f"a message does not decode: {exc}") from exc

    def close(self) -> None:
        self.sock.close()

    def _read_exactly(self, size: int, deadline: float | None) -> bytearray:
        data = bytearray()
        while len(data) < size:  # Grows with what has arrived: a length that a stranger claims reserves nothing.
            self._wait(select.POLLIN, deadline)
            part = self.sock.recv(min(size - len(data), RECEIVE_BYTES))
            if not part:
                raise EOFError("the other side closed the channel")
            data += part
        return data

    def _write(self, data: bytes, deadline: float | None) -> None:
        remaining = memoryview(data)
        while remaining:
            self._wait(select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError):
                remaining = remaining[self.sock.send(remaining, socket.MSG_DONTWAIT) :]

    def _wait(self, event: int, deadline: float | None) -> None:
        poller = select.poll()  # select() refuses descriptors above 1023.
        poller.register(self.sock, event)
        spun = time.monotonic() + self.spin_s
        while self.spin_s and time.monotonic() < spun:
            if poller.poll(0):
                return
        # Rounded up: polling with 0 ms until the deadline would be a busy loop.
        timeout_ms = None if deadline is None else math.ceil((deadline - time.monotonic()) * 1000)
        if (timeout_ms is not None and timeout_ms <= 0) or not poller.poll(timeout_ms):
            raise TimeoutError("no message within the time limit")
