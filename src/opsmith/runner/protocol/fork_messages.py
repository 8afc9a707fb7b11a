"""Messages between the judge and a zygote."""

from __future__ import annotations

from typing import Any

import msgspec

from opsmith.runner.protocol.referee_messages import RefereeError

MAX_PACKET_BYTES = 1 << 16


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Fork a child. Its socket and its output pipe follow as file descriptors of the same message."""

    role: str
    config: dict[str, Any]


class Forked(msgspec.Struct, frozen=True, tag=True):
    pid: int


class NotForked(msgspec.Struct, frozen=True, tag=True):
    """There is no child: the system refuses another process, for the reason given."""

    reason: str


class Exited(msgspec.Struct, frozen=True, tag=True):
    """A child ended; ``status`` is as :func:`os.waitstatus_to_exitcode` gives it."""

    pid: int
    status: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The zygote has finished its imports; ``facts`` describe the environment."""

    facts: dict[str, Any]


ZygoteReply = Forked | NotForked | Exited | Ready | RefereeError
