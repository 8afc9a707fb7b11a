"""The worker: the only process that imports and runs a candidate's code.

Nothing it says is believed beyond being data: the judge decodes its replies into fixed types, the
referee compares the bytes. Expected values, the run's seed and other kernels never enter it.
"""

from __future__ import annotations

import os
import resource
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from opsmith.core.case import CallRecord, Outcome
from opsmith.evaluation.inputs import CALL_DECODER, rebuild
from opsmith.evaluation.outcome import observe
from opsmith.evaluation.timing import TimedCall
from opsmith.runner.loading import discover, load_kernel
from opsmith.runner.protocol import (
    BlockTimed,
    Channel,
    Discover,
    Discovered,
    Loaded,
    LoadKernel,
    Raised,
    Returned,
    RunCall,
    TimeBlock,
    WorkerReply,
    WorkerRequest,
)

#: Messages from a candidate are cut to this, so that they stay one line that can be read.
MAX_MESSAGE_CHARS = 2_000
MAX_TRACEBACK_CHARS = 8_000
MAX_FILE_BYTES = 4 << 30


def serve(channel: Channel, *, device: str, scratch: str, builds: str, threads: int) -> None:
    """Answer the judge's requests until it closes the channel.

    Args:
        device: torch device string that kernels run on.
        scratch: private folder: working directory, home and temporary files.
        builds: parent of the per-kernel build caches.
        threads: CPU threads that a kernel may use through torch.
    """
    _confine(scratch)
    torch.set_num_threads(threads)
    worker = Worker(torch.device(device), Path(builds))
    while True:
        try:
            request = channel.receive(WorkerRequest)
        except EOFError:
            return
        reply = worker.answer(request)
        channel.send(reply)
        if isinstance(reply, Raised) and reply.kind == "device":
            return


def _confine(scratch: str) -> None:
    os.chdir(scratch)
    for name in ("TMPDIR", "HOME"):
        os.environ[name] = scratch
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    # If the machine runs out of memory, the kernel's process goes first, not the judge's.
    Path("/proc/self/oom_score_adj").write_text("1000")


class Worker:
    """Holds the loaded kernel and runs it."""

    def __init__(self, device: torch.device, builds: Path) -> None:
        self._device = device
        self._builds = builds
        self._kernel: Callable[..., Any] | None = None
        self._timed: TimedCall | None = None
        if device.type != "cpu":
            torch.zeros(1, device=device)  # Make the device context before the first request.

    def answer(self, request: WorkerRequest) -> WorkerReply:
        """Carry out one request; whatever the candidate raises becomes a :class:`Raised`."""
        try:
            if isinstance(request, LoadKernel):
                return self._load(request)
            if isinstance(request, RunCall):
                return self._run(request)
            if isinstance(request, TimeBlock):
                return self._time(request)
            return self._discover(request)
        except BaseException as exc:  # noqa: BLE001 - the worker's edge: candidates raise anything
            return _raised(exc)

    def _load(self, request: LoadKernel) -> Loaded:
        start = time.perf_counter()
        self._use_build_cache(request.kernel.content_hash)
        self._timed = None
        self._kernel = load_kernel(request.kernel, Path(request.root) if request.root else None, request.schema)
        return Loaded(time.perf_counter() - start)

    def _use_build_cache(self, kernel_hash: str) -> None:
        """Point every compiler at a cache that belongs to this kernel alone."""
        for variable, folder in (
            ("TRITON_CACHE_DIR", "triton"),
            ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
            ("TORCH_EXTENSIONS_DIR", "extensions"),
        ):
            os.environ[variable] = str(self._builds / kernel_hash / folder)
        (self._builds / kernel_hash / "extensions").mkdir(parents=True, exist_ok=True)

    def _run(self, request: RunCall) -> Returned:
        assert self._kernel is not None
        record = CALL_DECODER.decode(request.call)
        outcomes = []
        for repeat in range(request.repeats):
            torch.manual_seed(request.rng_seed + repeat)
            outcomes.append(msgspec.Raw(msgspec.msgpack.encode(self._call(record))))
        return Returned(tuple(outcomes))

    def _call(self, record: CallRecord) -> Outcome:
        assert self._kernel is not None
        live = rebuild(record, self._device)
        with torch.no_grad():
            result = self._kernel(*live.args, **live.kwargs)
        if self._device.type != "cpu":
            torch.accelerator.synchronize()
        return observe(result, live, record)

    def _time(self, request: TimeBlock) -> WorkerReply:
        if request.call is not None:
            assert self._kernel is not None
            self._timed = TimedCall(self._kernel, CALL_DECODER.decode(request.call), self._device)
        assert self._timed is not None
        return BlockTimed(self._timed.block(request.calls, request.quantity))

    def _discover(self, request: Discover) -> Discovered:
        return discover(request.target, request.ops)


def _raised(exc: BaseException) -> Raised:
    text = "".join(traceback.format_exception(exc))
    message = f"{type(exc).__name__}: {exc}"
    return Raised(_kind(exc), _clean(message[:MAX_MESSAGE_CHARS]), _clean(text[-MAX_TRACEBACK_CHARS:]))


def _kind(exc: BaseException) -> str:
    if isinstance(exc, NotImplementedError):
        return "unsupported"
    if isinstance(exc, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(exc):
        return "memory"
    # A sticky device error leaves no usable context: the next call would fail for this one's sake.
    if isinstance(exc, torch.AcceleratorError):
        return "device"
    return "error"


def _clean(text: str) -> str:
    """Text that encodes as UTF-8, whatever the candidate put into its message."""
    return text.encode("utf-8", "replace").decode()
