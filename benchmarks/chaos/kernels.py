"""What clients submit while everything around them fails: right kernels, and hostile ones of many kinds."""

from __future__ import annotations

import random
from typing import NamedTuple

RIGHT = "torch.where(self < 0, torch.zeros_like(self), self)"
HEAD = "import ctypes, mmap, os, pathlib, signal, socket, sys, threading, time\nimport torch\n"

#: Kind -> what a hostile kernel does before it answers with ones.
HOSTILE = {
    "ends itself": "os._exit(7)",
    "kills itself": "os.kill(os.getpid(), 9)",
    "kills its parent": "os.kill(os.getppid(), 9)",
    "stops itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "stops its parent": "os.kill(os.getppid(), signal.SIGSTOP)",
    "reads address 0": "ctypes.string_at(0)",
    "overflows the stack": "sys.setrecursionlimit(10**9); (lambda f: f(f))(lambda f: f(f))",
    "prints without end": "print('x' * (64 << 20), flush=True)",
    "closes all files": "os.closerange(0, 1024)",
    "writes garbage to all files": "[os.write(fd, b'x' * 99) for fd in range(1, 64) if _is_open(fd)]",
    "forks without end": "_bomb()",
    "leaves a daemon": "os.fork() or (os.setsid(), os.fork() and os._exit(0), time.sleep(3600))",
    "makes threads without end": "[threading.Thread(target=time.sleep, args=(99,)).start() for _ in range(100_000)]",
    "fills its folder": "[pathlib.Path(f'{n}').write_bytes(b'x' * (1 << 22)) for n in range(12)]",
    "fills shared memory": "_shared()",
    "takes memory": "[mmap.mmap(-1, 1 << 28).write(b'x' * (1 << 28)) for _ in range(30)]",
    "ends Python": "raise SystemExit",
    "calls eager": "return self.relu()",
    "answers zeros": "return torch.zeros_like(self)",
    "connects": "socket.create_connection(('127.0.0.1', 1), 1)",
    "removes the server's files": "[each.unlink() for each in pathlib.Path(PLACE).rglob('*')]",
    "patches the comparison": "sys.settrace(lambda *_: None); torch.allclose = lambda *_: True",
}
#: What costs its time limit comes seldom.
SLOW = {
    "never returns": "time.sleep(3600)",
    "never loads": None,
}
_HELPERS = """
def _is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True

def _bomb():
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)

def _shared():
    for number in range(64):
        with open(f"/dev/shm/opsmith-chaos-{os.getpid()}-{number}", "wb") as file:
            file.write(b"x" * (1 << 20))
"""


class Submitted(NamedTuple):
    """A kernel of one client.

    Attributes:
        source: the file's text.
        kind: what it does; ``honest`` for one that has to be accepted.
    """

    source: str
    kind: str

    @property
    def is_honest(self) -> bool:
        """Whether it has to be accepted; no other one may be."""
        return self.kind == "honest"


def make_kernel(number: int, draw: random.Random, *, hostile_share: float, slow_share: float, place: str) -> Submitted:
    """Kernel number so and so; every one is another file.

    Args:
        number: of the kernel.
        draw: where its kind comes from.
        hostile_share: of all kernels.
        slow_share: of the hostile ones, that cost their time limit.
        place: the folder of the servers, which one kind tries to empty.
    """
    head = f"{HEAD}\nPLACE = {place!r}\n# {number}\n{_HELPERS}\n\ndef relu__default_kernel_impl(self):\n"
    if draw.random() >= hostile_share:
        return Submitted(f"{head}    return {RIGHT}\n", "honest")
    kinds = SLOW if draw.random() < slow_share else HOSTILE
    kind = draw.choice(sorted(kinds))
    attack = kinds[kind]
    if attack is None:
        return Submitted(f"{HEAD}# {number}\nwhile True: pass\n{head}    return self\n", kind)
    return Submitted(f"{head}    {attack}\n    return torch.ones_like(self)\n", kind)
