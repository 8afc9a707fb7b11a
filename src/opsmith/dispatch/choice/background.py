"""Compiling the shipped kernels in processes of their own, while PyTorch's kernels answer.

A kernel of Triton's is compiled at its first launch, which takes a second or more: a model whose calls have dozens of
kernels would wait for half a minute. What is compiled is kept on disk by Triton, so a process beside this one can do
it, and no process that launches the kernel has to.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
import torch
from torch import Tensor

from opsmith.core.case import CallRecord, ComplexValue, NamedValue, SequenceValue, TensorValue, Value, digest
from opsmith.core.compile_job import GPU, CompileJob, receive, send
from opsmith.core.dtypes import TENSOR_SHORT_NAMES

#: Processes at most, and of how many cores one is taken.
MOST_PROCESSES, CORES_A_PROCESS = 4, 4
#: Seconds without work after which a process ends.
IDLE_S = 20.0
_COMMAND = (sys.executable, "-m", "opsmith.prewarm.serving")
_NICE = 10
#: Seconds between two looks whether a process that was killed is gone.
_REAPED_S = 0.01


class BackgroundCompiler:
    """Has the kernels of calls compiled, once on a machine.

    Args:
        gpu: that is compiled for.
        file: names the calls whose kernels are compiled; goes with the compiled kernels when they are removed.
        processes: that compile, at most.
    """

    def __init__(self, gpu: GPU, file: Path, processes: int) -> None:
        self._gpu, self._file, self._processes = gpu, file, processes
        self._lock = threading.Lock()
        self._done = set(_lines(file))
        self._asked: set[str] = set()
        self._waiting: queue.Queue[tuple[str, CompileJob]] = queue.Queue()
        self._threads = 0

    def ready(self, key: str, entry: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether the kernels of a call are compiled; they will be, if not.

        Args:
            key: names the kernel and the class of the call.
            entry: the kernel, as the manifest has it.
            args: of the call.
            kwargs: likewise.
        """
        name = digest(key.encode())
        with self._lock:
            if name in self._done:
                return True
            if name not in self._asked:
                self._asked.add(name)
                call = described(args, kwargs)
                if call is None:  # It cannot be told to another process, so it is compiled here.
                    self._done.add(name)
                    return True
                self._waiting.put((name, CompileJob(entry=entry, call=call)))
                if self._threads < min(self._processes, len(self._asked - self._done)):
                    self._start()
            return False

    def _serve(self) -> None:
        """Pass jobs to a process of this thread's own, until there are none for a while or it is gone."""
        is_gone = False
        try:
            with self._process() as (asks, answers):
                send(asks, self._gpu)
                while (next_one := self._next()) is not None:
                    name, job = next_one
                    send(asks, job)
                    if receive(answers) is None:
                        raise BrokenPipeError
                    self._keep(name)
        except OSError:
            is_gone = True
        with self._lock:
            self._threads -= 1
            if is_gone:  # Kernels are compiled where they are called, as they are without such processes.
                self._done |= self._asked
            elif not self._waiting.empty():
                self._start()

    def _next(self) -> tuple[str, CompileJob] | None:
        """The next job; None if there was none for a while.

        Meanwhile this thread is in a lock of Python's library, so kernels can be taken out.
        """
        with contextlib.suppress(queue.Empty):
            return self._waiting.get(timeout=IDLE_S)
        return None

    @contextlib.contextmanager
    def _process(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """One that compiles: where it is asked, and where it answers. It ends when it is asked nothing more."""
        if getattr(sys, "frozen", False) or not sys.executable:
            raise OSError("this program is no Python that runs modules")  # It would start the program once more.
        environment = os.environ | {"TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(  # noqa: S603 - it is our own
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is for the program.
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
            yield process.stdin, process.stdout
        finally:
            process.kill()
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.stdout.close()
            pause = threading.Event()  # As between jobs: this thread is in a lock of Python's library.
            while process.poll() is None:
                pause.wait(_REAPED_S)

    def _start(self) -> None:
        self._threads += 1
        threading.Thread(target=self._serve, name="opsmith-compile", daemon=True).start()

    def _keep(self, name: str) -> None:
        with self._lock:
            self._done.add(name)
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("ab") as file:
                file.write(f"{name}\n".encode())


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def described(args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallRecord | None:
    """A call without what lies in its tensors' memory; None if a value is of no known type."""
    try:
        return CallRecord(
            op="",
            args=tuple(map(_value, args)),
            kwargs={name: _value(value) for name, value in kwargs.items()},
            storages=(),
        )
    except TypeError:
        return None


def _value(value: Any) -> Value:
    if isinstance(value, Tensor):
        name = str(value.dtype).removeprefix("torch.")
        # An address is told from the start of its memory: modulo 16 bytes, as kernels are compiled for it.
        offset = value.data_ptr() % 16 // value.element_size()
        return TensorValue(
            storage=0,
            dtype=TENSOR_SHORT_NAMES.get(name, name),
            shape=tuple(value.shape),
            strides=value.stride(),
            offset=offset,
            device=value.device.type,
        )
    if isinstance(value, (list, tuple)):
        return SequenceValue(tuple(map(_value, value)), is_tuple=isinstance(value, tuple))
    if value is None or type(value) in {bool, int, float, str}:
        return value  # type: ignore[no-any-return]
    if isinstance(value, complex):
        return ComplexValue(value.real, value.imag)
    if isinstance(value, torch.device):
        return NamedValue("device", value.type)
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return NamedValue(type(value).__name__, str(value).removeprefix("torch."))
    raise TypeError(type(value).__name__)


@functools.cache
def background_compiler(device: torch.device) -> BackgroundCompiler:
    """That of this process for a device of CUDA's."""
    import triton

    properties = torch.cuda.get_device_properties(device)
    gpu = GPU(
        architecture=10 * properties.major + properties.minor,
        multiprocessors=properties.multi_processor_count,
        name=torch.cuda.get_device_name(device),
    )
    versions = digest(f"{msgspec.json.encode(gpu)!r} {torch.__version__} {triton.__version__}".encode())
    cores = len(os.sched_getaffinity(0))
    processes = max(1, min(MOST_PROCESSES, cores // CORES_A_PROCESS))
    return BackgroundCompiler(gpu, Path(triton.knobs.cache.dir) / f"opsmith-{versions}.txt", processes)


# The threads of a process are not those of its fork.
os.register_at_fork(after_in_child=background_compiler.cache_clear)
