"""Kernels that clients submit: right ones, wrong ones, and ones that go for the judge."""

from __future__ import annotations

from typing import NamedTuple

RIGHT = "torch.where(self < 0, torch.zeros_like(self), self)"

#: What a hostile kernel does before it answers; the last one costs its time limit, so it comes seldom.
ATTACKS = (
    "os._exit(7)",
    "ctypes.string_at(0)",
    "os.kill(os.getppid(), 9)",
    "print('x' * (64 << 20), flush=True)",
    "raise SystemExit",
    "return self.relu()",
    "return torch.zeros_like(self)",
    "socket.create_connection(('127.0.0.1', 1), 1)",
    "[path.unlink() for path in pathlib.Path(PLACE).rglob('*')]; return self",
    "sys.settrace(lambda *_: None); torch.allclose = lambda *_: True; return self + 1",
    "time.sleep(3600)",
)


class Submitted(NamedTuple):
    """A kernel of one client.

    Attributes:
        source: the file's text.
        hostile: whether it must not be accepted.
    """

    source: str
    hostile: bool


def make_kernel(number: int, *, hostile_share: float, place: str) -> Submitted:
    """Kernel number so and so; every one is another file.

    Args:
        number: of the kernel.
        hostile_share: of all kernels.
        place: the folder of the server, which an attack tries to empty.
    """
    head = "import ctypes, os, pathlib, socket, sys, time\nimport torch\n\n"
    head += f"PLACE = {place!r}\n# {number}\n\ndef relu__default_kernel_impl(self):\n"
    before, after = int(number * hostile_share), int((number + 1) * hostile_share)
    if before == after:
        return Submitted(f"{head}    return {RIGHT}\n", hostile=False)
    seldom = before % 50 == 49
    attack = ATTACKS[-1] if seldom else ATTACKS[before % (len(ATTACKS) - 1)]
    return Submitted(f"{head}    {attack}\n    return torch.ones_like(self)\n", hostile=True)
