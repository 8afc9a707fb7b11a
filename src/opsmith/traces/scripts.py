"""Recording a script that does what it likes: threads, processes, signals, and ends without a word.

The script's own outcome does not change. Calls are written to the trace as they come, at most some seconds after they
were made, so that no end loses more. An early end is told by the trace (``# incomplete: ...``) and on standard error,
where Python has a chance to: at ``os._exit``, ``exec`` and the signals of :data:`ENDING`. What functions call that are
registered with :mod:`atexit` is added when they have run.

Calls of all threads are recorded, and those of processes that the script forks, each of which writes a file of its own
beside the trace until they are put together. Other programs are named.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import util
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from unittest import mock

from opsmith.core.counts import counted
from opsmith.report.strangers import one_line
from opsmith.traces.capture import Capture
from opsmith.traces.grammar import parse_trace

#: Seconds from one writing to the next, at least; and what share of the time writing may take.
INTERVAL_S = 1.0
MOST_SHARE = 0.05
#: What ends a process that does not say otherwise.
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGXCPU, signal.SIGUSR1, signal.SIGUSR2)
_RUNNING = "the script was still running"


class Recorder:
    """Writes the trace of a script; see the module's docstring.

    Args:
        out: the trace file; written to once there is a call.
        model: what the trace says that it traces.
        device: see :class:`~opsmith.traces.capture.Capture`.
        progress: likewise.

    Attributes:
        capture: the calls.
        others: programs that the script started -> how often; their calls are not recorded.
    """

    def __init__(
        self, out: Path, model: str, *, device: str | None = None, progress: Callable[[int], None] | None = None
    ) -> None:
        self.capture = Capture(device=device, progress=progress, each=self._written_in_time)
        self.others: Counter[str] = Counter()
        # The script may change its folder.
        self._out = self._trace = out.absolute()
        self._headers = {"model": one_line(model)}
        self._owner = os.getpid()
        self._active = False
        self._has_told_of_exec = False
        self._next = time.monotonic() + INTERVAL_S

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked by the script."""
        return os.getpid() != self._owner

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is called within it, by all threads and forked processes; then write the trace."""
        sys.addaudithook(self._audited)
        os.register_at_fork(after_in_child=self._forked)
        with contextlib.ExitStack() as undo:
            undo.enter_context(mock.patch.object(os, "_exit", self._leaving(os._exit)))
            undo.enter_context(mock.patch.object(atexit, "register", self._registering(atexit.register)))
            undo.enter_context(mock.patch.object(threading.Thread, "_bootstrap_inner", self._recorded_thread()))
            undo.enter_context(mock.patch.object(_thread, "start_new_thread", self._starting(_thread.start_new_thread)))
            undo.enter_context(mock.patch.object(util, "spawnv_passfds", self._spawning(util.spawnv_passfds)))
            undo.enter_context(self._signals())
            self._active = True
            try:
                with self.capture:
                    yield
                if not self.is_forked:
                    _wait_for_threads()  # As Python does before it ends.
            finally:
                self._active = False
                self._finish()

    def _finish(self) -> None:
        self._add_parts()
        self._write(None)

    def _add_parts(self) -> None:
        """Add what forked processes have written."""
        if self.is_forked:
            return
        prefix = self._part("")
        for part in sorted(path for path in self._out.parent.iterdir() if path.name.startswith(prefix)):
            self.capture.add(parse_trace(part.read_text(encoding="utf-8"), source=str(part)))
            part.unlink()

    def _part(self, name: object) -> str:
        """Name of the file of a forked process; one that a trace before has left behind has another owner's."""
        return f"{self._out.name}.{self._owner}.part{name}"

    def _write(self, incomplete: str | None) -> None:
        """Write the trace, if there is anything to write."""
        if not self.capture.calls:
            return
        more = {} if incomplete is None or self.is_forked else {"incomplete": incomplete}
        self.capture.write(self._trace, headers=self._headers | more)

    def _written_in_time(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = float("inf")  # Writing is no time for another thread to write.
        with contextlib.suppress(OSError):  # The script goes on; the last writing says what is wrong.
            self._write(_RUNNING)
        ended = time.monotonic()
        self._next = ended + max(INTERVAL_S, (ended - now) / MOST_SHARE)

    def _ends_early(self, how: str) -> None:
        self._active = False
        self._finish_early(f"the script {how}")
        if not self.is_forked:
            where = f"its {self.capture.calls:,} calls until then are in {one_line(str(self._trace))}"
            sys.stderr.write(f"opsmith: the script {how}; {where if self.capture.calls else 'it had called nothing'}\n")
            sys.stderr.flush()

    def _finish_early(self, how: str) -> None:
        with contextlib.suppress(OSError):  # The script ends as it would, whatever becomes of its trace.
            self._add_parts()
            self._write(how)

    def _leaving(self, leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
        def left(status: int) -> NoReturn:
            if self._active:
                self._ends_early(f"ended by os._exit({status})")
            leave(status)

        return left

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Have the trace written before a signal ends the process as it would have."""
        own = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]

        def ending(number: int, _frame: FrameType | None) -> None:
            self._ends_early(f"was ended by {signal.Signals(number).name}")
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        for number in own:
            signal.signal(number, ending)
        try:
            yield
        finally:
            for number in own:
                if signal.getsignal(number) is ending:
                    signal.signal(number, signal.SIG_DFL)

    def _recorded_thread(self) -> Callable[[threading.Thread], None]:
        start: Callable[[threading.Thread], None] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

        def started(thread: threading.Thread) -> None:
            with self.capture.beside() if self._active else contextlib.nullcontext():
                start(thread)

        return started

    def _starting(self, start: Callable[..., int]) -> Callable[..., int]:
        """Of threads that know nothing of :mod:`threading`."""

        def starting(function: Callable[..., object], *rest: Any) -> int:
            def recorded(*args: Any, **kwargs: Any) -> None:
                with self.capture.beside() if self._active else contextlib.nullcontext():
                    function(*args, **kwargs)

            return start(recorded, *rest)

        return starting

    def _registering(self, register: Callable[..., object]) -> Callable[..., object]:
        def registering(function: Callable[..., object], *args: Any, **kwargs: Any) -> Callable[..., object]:
            register(_AtExit(function, self._recorded_late), *args, **kwargs)
            return function

        return registering

    @contextlib.contextmanager
    def _recorded_late(self) -> Iterator[None]:
        """Record what is called after the script's end, and write the trace again."""
        before = self.capture.calls
        try:
            with self.capture.beside():
                yield
        finally:
            added = self.capture.calls - before
            if added:
                self._told_of_late(added)

    def _told_of_late(self, added: int) -> None:
        with contextlib.suppress(OSError, ValueError):  # The folder or the stream may be gone: so is whoever reads it.
            self._write(None)
            if not self.is_forked:
                sys.stderr.write(f"opsmith: {counted(added, 'call')} at exit, added to {one_line(str(self._trace))}\n")

    def _spawning(self, spawn: Callable[..., int]) -> Callable[..., int]:
        def spawned(path: Any, *rest: Any) -> int:
            self.others["worker processes of multiprocessing"] += 1
            return spawn(path, *rest)

        return spawned

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active:
            return
        if event in ("subprocess.Popen", "os.posix_spawn", "os.spawn"):
            path = arguments[1] if event == "os.spawn" else arguments[0]
            self.others[Path(os.fsdecode(path)).name if isinstance(path, (str, bytes)) else "a program"] += 1
        elif event == "os.system":
            self.others["a shell"] += 1
        elif event == "os.exec" and not self._has_told_of_exec:  # There may be none of that name, and another try.
            self._has_told_of_exec = True
            self._ends_early("executed another program in its place")
            self._active = True

    def _forked(self) -> None:
        if self._active:
            self.capture.start_anew()
            self._trace = self._out.with_name(self._part(f".{os.getpid()}"))
            self._next = time.monotonic() + INTERVAL_S


class _AtExit:
    """A function that is registered with :mod:`atexit`, and still equal to itself for ``atexit.unregister``."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, function: Callable[..., object], recorded: Callable[[], contextlib.AbstractContextManager[None]]
    ) -> None:
        self._function, self._recorded = function, recorded

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        with self._recorded():
            self._function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self is other or self._function == other


def _wait_for_threads() -> None:
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
