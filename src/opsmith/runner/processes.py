"""The judge's hold on its processes: start them, talk to them, watch them, kill them."""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from opsmith.core.verdict import Status
from opsmith.errors import RefereeFailed
from opsmith.runner.protocol import Channel, Exited, Fork, Forked, Ready, ZygoteReply
from opsmith.runner.zygote import MAX_PACKET_BYTES

#: Environment variables that a kernel's process may see; everything else stays outside.
KEPT_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CC",
    "CXX",
    "NCCL_NVLS_ENABLE",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST",
    "NVSHMEM_DISABLE_NVLS",
)

#: Isolation that is active in every worker; recorded in ``run.json``.
SANDBOX_LAYERS = (
    "own process and session",
    "wall-clock limit",
    "resident-memory limit",
    "output limit",
    "file-size limit",
    "closed descriptors",
    "private working, home and temporary folder",
    "scrubbed environment",
    "private build caches",
    "dies with the judge",
)

IMPORT_TIMEOUT_S = 180.0
WATCH_INTERVAL_S = 0.05
#: What is kept of a child's output, from its end.
KEPT_OUTPUT_BYTES = 16_384
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Child:
    """A forked referee or worker.

    Attributes:
        channel: the typed channel to it.
        killed_for: the limit it broke, where the watch killed it.
        scratch: its private folder, removed with it.
    """

    def __init__(self, pid: int, channel: Channel, output_fd: int, scratch: Path, limit_bytes: int | None) -> None:
        self.pid = pid
        self.channel = channel
        self.output_fd = output_fd
        self.scratch = scratch
        self.killed_for: Status | None = None
        self.limit_bytes = limit_bytes
        self.output_bytes = 0
        self.output_tail = b""
        self.start_bytes = _resident_bytes(pid)
        self.exit_status: int | None = None
        self._ended = threading.Event()
        self._draining = threading.Lock()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end; the exit status (negative for a signal), or None if it lives on."""
        self._ended.wait(timeout_s)
        return self.exit_status

    def note_exit(self, status: int) -> None:
        self.exit_status = status
        self._ended.set()

    def kill(self) -> None:
        """Kill the child and every process of its session's group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.exit_status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def drain(self) -> bool:
        """Take what the child printed since the last look; False once it can print no more."""
        with self._draining:
            try:
                data = os.read(self.output_fd, 1 << 20) if self.output_fd >= 0 else b""
            except BlockingIOError:
                return True
            self.output_tail = (self.output_tail + data)[-KEPT_OUTPUT_BYTES:]
            self.output_bytes += len(data)
            return bool(data)

    def last_output(self) -> str:
        """The end of what it printed."""
        self.drain()
        return self.output_tail.decode("utf-8", "replace")

    def close(self) -> None:
        """Give back the descriptors."""
        self.channel.close()
        with self._draining:
            os.close(self.output_fd)
            self.output_fd = -1


class Processes:
    """One zygote with all its children, and the thread that watches them.

    Args:
        device: torch device string of the run; on the CPU Triton is interpreted.
        memory_limit_bytes: resident memory that a worker may add to what it was born with.
        output_limit_bytes: bytes a worker may print while it answers one request.
    """

    def __init__(self, device: str, *, memory_limit_bytes: int, output_limit_bytes: int) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="opsmith-"))
        self.facts: dict[str, Any] = {}
        self._device = device
        self._memory_limit_bytes = memory_limit_bytes
        self._output_limit_bytes = output_limit_bytes
        self._children: dict[int, Child] = {}
        self._early_exits: dict[int, int] = {}
        self._lock = threading.Lock()
        self._forked: queue.Queue[int] = queue.Queue()
        self._fork_lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._closing = False
        self._ready = threading.Event()
        self._gone = threading.Event()

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "opsmith.runner.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=_scrubbed_environment(self._device, self.scratch),
            stdin=subprocess.DEVNULL,
            stderr=(self.scratch / "zygote.log").open("wb"),
        )
        theirs.close()
        threading.Thread(target=self._listen, name="zygote listener", daemon=True).start()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._closing = True
        for child in list(self._children.values()):
            child.kill()
        self._control.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    @property
    def interpreted(self) -> bool:
        """Whether Triton kernels run under Triton's interpreter."""
        return bool(self.facts["interpreted"])

    def wait_ready(self) -> None:
        """Wait until the zygote has imported torch.

        Raises:
            RefereeFailed: it died or took too long; the message ends with its last line.
        """
        self._ready.wait(IMPORT_TIMEOUT_S)
        if not self.facts:
            lines = (self.scratch / "zygote.log").read_text(errors="replace").strip().splitlines()
            raise RefereeFailed(f"the process that imports torch did not start: {lines[-1] if lines else 'no message'}")

    def fork(self, role: str, **config: Any) -> Child:
        """Fork a ``referee`` or ``worker``; ``config`` goes to its ``serve``.

        Raises:
            RefereeFailed: the zygote is gone.
        """
        self.wait_ready()
        scratch = Path(tempfile.mkdtemp(prefix=f"{role}-", dir=self.scratch))
        if role == "worker":
            config["scratch"] = str(scratch)
        ours, theirs = socket.socketpair()
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        packet = msgspec.msgpack.encode(Fork(role, config))
        assert len(packet) <= MAX_PACKET_BYTES
        with self._fork_lock:
            try:
                socket.send_fds(self._control, [packet], [theirs.fileno(), write_fd])
                pid = self._forked.get(timeout=IMPORT_TIMEOUT_S)
            except (OSError, queue.Empty) as exc:
                raise RefereeFailed(
                    "the zygote died; run again, and report it with the output of `opsmith doctor`"
                ) from exc
            finally:
                theirs.close()
                os.close(write_fd)
        child = Child(pid, Channel(ours), read_fd, scratch, self._memory_limit_bytes if role == "worker" else None)
        with self._lock:
            self._children[pid] = child
            early = self._early_exits.pop(pid, None)
        self._selector.register(read_fd, selectors.EVENT_READ, child)
        if early is not None:
            child.note_exit(early)
        return child

    def discard(self, child: Child) -> None:
        """Kill a child, if it still lives, and remove what it leaves."""
        child.kill()
        with contextlib.suppress(KeyError):
            self._selector.unregister(child.output_fd)
        child.close()
        with self._lock:
            self._children.pop(child.pid, None)
        shutil.rmtree(child.scratch, ignore_errors=True)

    # ------------------------------------------------------------ the two threads

    def _listen(self) -> None:
        decoder = msgspec.msgpack.Decoder(ZygoteReply)
        while not self._closing:
            try:
                packet = self._control.recv(MAX_PACKET_BYTES)
            except OSError:
                break
            if not packet:
                break
            message = decoder.decode(packet)
            if isinstance(message, Ready):
                self.facts = message.facts
                self._ready.set()
            elif isinstance(message, Forked):
                self._forked.put(message.pid)
            elif isinstance(message, Exited):
                self._note_exit(message)
        self._ready.set()

    def _note_exit(self, message: Exited) -> None:
        with self._lock:
            child = self._children.get(message.pid)
            if child is None:
                self._early_exits[message.pid] = message.status
        if child is not None:
            child.note_exit(message.status)

    def _watch(self) -> None:
        next_look = 0.0
        while not self._closing:
            for key, _ in self._selector.select(WATCH_INTERVAL_S):
                self._drain(key.data)
            now = time.monotonic()
            if now >= next_look:
                next_look = now + WATCH_INTERVAL_S
                for child in list(self._children.values()):
                    self._check_memory(child)

    def _drain(self, child: Child) -> None:
        if not child.drain():
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(child.output_fd)
            return
        if child.output_bytes > self._output_limit_bytes and child.killed_for is None:
            child.killed_for = Status.OUTPUT_LIMIT
            child.kill()

    def _check_memory(self, child: Child) -> None:
        if child.limit_bytes is None or child.killed_for is not None or child.exit_status is not None:
            return
        used = _resident_bytes(child.pid) + sum(_resident_bytes(pid) for pid in _descendants(child.pid))
        if used - child.start_bytes > child.limit_bytes:
            child.killed_for = Status.OUT_OF_MEMORY
            child.kill()


def _scrubbed_environment(device: str, scratch: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    kept |= {
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    if device.partition(":")[0] == "cpu":
        # Triton reads it while it is imported; setting it later breaks tl.sum.
        kept["TRITON_INTERPRET"] = "1"
    return kept


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0  # It has ended.


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    found = [int(child) for child in children]
    return found + [grandchild for child in found for grandchild in _descendants(child)]
