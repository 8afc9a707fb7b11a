"""The judge's hold on the bare program: an interpreter without opsmith that forks a process for each kernel."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opsmith.core.case import CallRecord, StoredOutcome
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema
from opsmith.errors import ProtocolError
from opsmith.runner.processes.children import Child, Processes
from opsmith.runner.processes.failures import LIMIT_DETAILS, REAP_TIMEOUT_S, describe_end
from opsmith.runner.processes.worker_link import INTERPRETED_CALL
from opsmith.runner.processes.zygote_link import ZygoteGone, ZygoteLink
from opsmith.runner.protocol.bare_messages import BareRaised, PlainCall, described, read_answer, write_request
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.sandbox.landlock import EVERYTHING, READ
from opsmith.runner.sandbox.reach import Reach

SOURCE = Path(__file__).parents[1] / "bare" / "program.py"
#: Importing torch, with all cores busy.
START_TIMEOUT_S = 120.0
ANSWER = "answer"
#: What stands for a kernel's folder.
PACKAGE = "kernels"
#: Processes at a time on a device, where each has a context.
MOST_ON_DEVICE = 4
#: Folders of a kernel's build cache -> variables that name them to compilers.
BUILDS = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "CUPY_CACHE_DIR": "cupy",
    "TILELANG_CACHE_DIR": "tilelang",
    "CUDA_TILE_CACHE_DIR": "cutile",
    "PYTORCH_KERNEL_CACHE_PATH": "jiterator",
}


class NotAnswered(Exception):
    """A bare process ended before it came to the kernel; the message says how."""


class CallAsked(NamedTuple):
    """A call, how often it is made, and the random state of the first time."""

    call: PlainCall
    repeats: int
    seed: int


class BareProcess:
    """A process of the bare program: :meth:`ask` it once.

    Args:
        link: that it is of.
        folder: its own, made for it.

    Attributes:
        folder: where what it is asked lies; the kernel does not get to see it.
        scratch: its private folder, where large results lie afterwards.
    """

    def __init__(self, link: BareLink, folder: Path) -> None:
        self._link = link
        self._child: Child | None = None
        self.folder = folder
        self.scratch = folder / "home"
        self._kernels = folder / "lib"

    def ask(
        self,
        kernel: Kernel,
        root: Path | None,
        schema: OpSchema,
        calls: Sequence[CallAsked],
        build_cache: str,
        *,
        most_s: float = math.inf,
    ) -> list[list[StoredOutcome] | str]:
        """Have a kernel answer calls; of each its outcomes, or in a line why there are none.

        Args:
            kernel: the record.
            root: folder of its files, or None.
            schema: of the task.
            calls: what it is asked.
            build_cache: where it has been built, among the build caches.
            most_s: seconds that it gets at most.

        Raises:
            NotAnswered: it did not come to loading the kernel.
            ZygoteGone: no process could be had.
        """
        request = self._link.request(kernel, schema, calls, build_cache)
        request |= {"scratch": str(self.scratch), "answer": ANSWER}
        request["rules"] += [[str(self.scratch), EVERYTHING], [str(self._kernels), READ]]
        if root is not None:
            request["root"] = str(shutil.copytree(root, self._kernels / PACKAGE))
        if request["module"] is not None:
            (self.folder / "module").write_bytes(request["module"].pop("content"))
            request["module"]["values"] = str(self.folder / "module")
        write_request(self.folder / "request", request)
        self._child = child = self._link.fork(self.folder / "request", triton=kernel.dsl == "triton")
        limit_s = min(self._link.limit_s(kernel, calls), most_s)
        ended = child.wait(limit_s)
        if not child.channel.has_unread():
            output = child.last_output().strip().splitlines()
            raise NotAnswered(f"the process for it did not start: {output[-1] if output else 'no message'}")
        if ended is None and not child.zygote.gone:
            return [f"no answer within {limit_s:g} s"] * len(calls)
        if child.killed_for is not None:
            return [LIMIT_DETAILS[child.killed_for]] * len(calls)
        try:
            answer = read_answer(self.scratch / ANSWER)
        except (OSError, ProtocolError) as exc:
            end = describe_end(child, exc) if ended else "it ended without an answer"
            return [f"{end} {child.last_output().strip()[-200:]}".strip()] * len(calls)
        if isinstance(answer, BareRaised):
            return [answer.message] * len(calls)
        if len(answer) != len(calls):
            return ["it did not answer what it was asked"] * len(calls)
        return [one.message if isinstance(one, BareRaised) else one for one in answer]

    def close(self) -> None:
        """End it, with all that it has left."""
        if self._child is not None:
            self._link.discard(self._child)
        shutil.rmtree(self.folder, ignore_errors=True)


class BareLink:
    """Starts the bare program when it is made, and again after it was lost.

    Args:
        processes: starts it.
        reach: where kernels find things, as for workers.
        device: torch device string that kernels run on.
        limits: time limits.
    """

    def __init__(self, processes: Processes, reach: Reach, *, device: str, limits: Limits) -> None:
        self._processes = processes
        self._reach = reach
        self._device = device
        self._limits = limits
        #: By whether Triton is imported: a program that runs none has not imported it.
        self._zygotes: dict[bool, ZygoteLink] = {}
        self._starting = threading.Lock()
        self._room = threading.Semaphore(sys.maxsize if device.startswith("cpu") else MOST_ON_DEVICE)

    def start(self, *, triton: bool = False) -> ZygoteLink:
        """Begin to start the program, which takes seconds, unless it runs.

        Args:
            triton: it is for kernels of Triton's, which each would import and hash otherwise.

        Raises:
            ZygoteGone: there is nothing to start it from.
        """
        with self._starting:
            zygote = self._zygotes.get(triton)
            if zygote is None or zygote.gone:
                if zygote is not None:
                    zygote.close()  # It may be silent, and live.
                source = SOURCE.read_text(encoding="utf-8")
                zygote = self._zygotes[triton] = self._processes.start_bare(source, self._reach, triton=triton)
            return zygote

    @contextlib.contextmanager
    def process(self) -> Iterator[BareProcess]:
        """A process that is to be asked, which ends with the context."""
        folder = Path(tempfile.mkdtemp(dir=self._processes.scratch))
        process = BareProcess(self, folder)
        process.scratch.mkdir()
        with self._room:
            try:
                yield process
            finally:
                process.close()

    def fork(self, request: Path, *, triton: bool) -> Child:
        """Fork a process that carries out a request.

        Raises:
            ZygoteGone: the program is not there.
        """
        zygote = self.start(triton=triton)
        if not zygote.wait_ready(START_TIMEOUT_S):
            raise ZygoteGone
        return self._processes.fork_bare(request, zygote)

    def discard(self, child: Child) -> None:
        """End a process. Where its end is not reported, the program is started anew: it may be harmed."""
        self._processes.discard(child)
        if child.wait(REAP_TIMEOUT_S) is None:
            self.close()

    def close(self) -> None:
        """End the program with all of its processes."""
        with self._starting:
            for zygote in self._zygotes.values():
                zygote.close()
            self._zygotes.clear()

    def limit_s(self, kernel: Kernel, calls: Sequence[CallAsked]) -> float:
        """Seconds that a process gets to load a kernel and to answer."""
        each_s = self._limits.call_s
        if kernel.dsl == "triton" and self._processes.interpreted:
            each_s *= INTERPRETED_CALL
        return self._limits.load_s + each_s * sum(call.repeats for call in calls)

    def request(self, kernel: Kernel, schema: OpSchema, calls: Sequence[CallAsked], build_cache: str) -> dict[str, Any]:
        """What a process is to do, but for its folders."""
        builds = Path(self._reach.builds, build_cache)
        asked = [
            {**json.loads(call.described), "values": call.values, "repeats": repeats, "seed": seed}
            for call, repeats, seed in calls
        ]
        return {
            "device": self._device,
            # A kernel that has built nothing need not find where.
            "environment": {variable: str(builds / name) for variable, name in BUILDS.items() if _holds(builds / name)},
            "rules": [[str(builds), EVERYTHING]],
            "entry": kernel.entry,
            "root": None,
            "target": kernel.entry if kernel.loader is Loader.ATTRIBUTE else None,
            "asked": kernel.derived_from or schema.name,
            "search": [self._reach.started_in] if self._reach.started_in else [],
            "package": PACKAGE,
            "op": schema.name,
            "derived_from": kernel.derived_from,
            "module": _construction(schema),
            "calls": asked,
        }


def _holds(folder: Path) -> bool:
    """Whether there is anything in a folder."""
    return folder.is_dir() and next(folder.iterdir(), None) is not None


def _construction(schema: OpSchema) -> dict[str, Any] | None:
    """What a module is constructed with, and the content of its storages."""
    if schema.init is None:
        return None
    record = msgspec.msgpack.decode(schema.init, type=CallRecord)
    assert all(isinstance(storage, bytes) for storage in record.storages), "what modules are made with is recorded"
    content = b"".join(storage for storage in record.storages if isinstance(storage, bytes))
    return {**described(record), "content": content}
