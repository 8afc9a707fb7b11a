"""The judge's end of a zygote: asks it for children and hears how they end."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from typing import Any

import msgspec

from opsmith.errors import ProcessLost
from opsmith.runner.protocol.fork_messages import MAX_PACKET_BYTES, Exited, Fork, Forked, NotForked, Ready, ZygoteReply


class ZygoteGone(ProcessLost):
    """The zygote ended, does not answer, or is refused a process by the system.

    Args:
        reason: what is known of it, in one line.
    """

    def __init__(self, reason: str = "the process that workers are forked from is gone") -> None:
        super().__init__(reason)


class ZygoteLink:
    """A zygote on the other side of a SEQPACKET socket, with the thread that listens to it.

    Args:
        control: the judge's end.
        pid: its process.
        codec: ``msgspec.msgpack``, or ``msgspec.json`` for a process that has Python's library alone.

    Attributes:
        pid: its process.
        facts: what it reported about the packages that it imported; empty for a nursery.
    """

    def __init__(self, control: socket.socket, pid: int, *, codec: Any = msgspec.msgpack) -> None:
        self.pid = pid
        self._codec = codec
        self.facts: dict[str, Any] = {}
        self._control = control
        self._ready = threading.Event()
        self._forked: queue.SimpleQueue[Forked | NotForked | None] = queue.SimpleQueue()
        self._one_fork_at_a_time = threading.Lock()
        self._exits: dict[int, int] = {}
        self._gone = False
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, name="zygote listener", daemon=True).start()

    @property
    def gone(self) -> bool:
        """Whether it has ended, or has not answered once: it is asked nothing more."""
        return self._gone

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait for its end; whether it is gone."""
        with self._changed:
            return self._changed.wait_for(lambda: self._gone, timeout_s)

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait for the imports of a zygote that was started, not forked; whether they succeeded."""
        self._ready.wait(timeout_s)
        return bool(self.facts)

    def fork(self, role: str, config: dict[str, Any], descriptors: tuple[int, int], timeout_s: float) -> int:
        """Fork a child that gets copies of ``descriptors`` (its channel, its output); return its pid.

        Raises:
            ZygoteGone: there is no child.
        """
        packet = self._codec.encode(Fork(role, config))
        assert len(packet) <= MAX_PACKET_BYTES
        with self._one_fork_at_a_time:
            try:
                socket.send_fds(self._control, [packet], descriptors)
                reply = self._forked.get(timeout=timeout_s)
            except (OSError, queue.Empty) as exc:
                self._give_up()
                raise ZygoteGone from exc
        if reply is None:
            raise ZygoteGone
        if isinstance(reply, NotForked):
            raise ZygoteGone(f"no process could be forked: {reply.reason}")
        return reply.pid

    def exit_status(self, pid: int, timeout_s: float = 0.0) -> int | None:
        """How a child ended (negative for a signal); None if that is not known in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._gone or pid in self._exits, timeout_s)
            return self._exits.get(pid)

    def close(self) -> None:
        """Let the zygote end, with every process below it."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        decoder = self._codec.Decoder(ZygoteReply)
        with contextlib.suppress(OSError):
            while packet := self._control.recv(MAX_PACKET_BYTES):
                self._take(decoder.decode(packet))
        self._control.close()
        self._give_up()
        self._forked.put(None)
        self._ready.set()

    def _give_up(self) -> None:
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def _take(self, message: ZygoteReply) -> None:
        if isinstance(message, Ready):
            self.facts = message.facts
            self._ready.set()
            return
        with self._changed:
            if isinstance(message, Forked):
                self._exits.pop(message.pid, None)  # An earlier child with the same number.
                self._forked.put(message)
            elif isinstance(message, NotForked):
                self._forked.put(message)
            elif isinstance(message, Exited):
                self._exits[message.pid] = message.status
                self._changed.notify_all()
