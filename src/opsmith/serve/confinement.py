"""What a missing layer of the sandbox would let a submitted kernel do."""

from __future__ import annotations

from collections.abc import Iterable

from opsmith.errors import Unconfined, UsageError
from opsmith.runner.sandbox.layers import Layer

#: The flag that starts a server all the same.
FLAG = "--accept-missing-layers"

RISKS = {
    Layer.MEMORY: "read the judge's memory: seeds, tokens and other people's kernels",
    Layer.NETWORK: "send what it reads anywhere, and reach every service that this machine reaches",
    Layer.READ_ONLY: "change or delete files of the server's account, its database among them",
    Layer.PRIVILEGES: "use whatever the server's account may do, as root everything",
    Layer.FILES: "read files of the server's account: the database, keys, other people's kernels",
    Layer.SIGNALS: "end the judge and other processes of the server's account",
    Layer.PROGRAMS: "start any program",
    Layer.SYSTEM_CALLS: "call parts of the system in which holes have been found, and talk to local sockets",
}


def risks(missing: Iterable[str]) -> list[str]:
    """What the lack of layers lets a kernel do, one phrase each."""
    return [RISKS[Layer(layer)] for layer in missing]


def refusal(unconfined: Unconfined) -> UsageError:
    """Why the server does not start, with what could happen and the flag that accepts it."""
    could = "; ".join(risks(unconfined.missing))
    return UsageError(f"{unconfined}. Without them a submitted kernel could {could}. {FLAG} starts all the same")
