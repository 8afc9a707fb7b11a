"""The far end of a lane: carries out what another process asks, on this machine's device."""

from __future__ import annotations

import contextlib
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.run import Selection
from opsmith.core.storage import storage_problem
from opsmith.errors import BadInput, InternalError, OpsmithError
from opsmith.runner.executors.messages import (
    CaseTimed,
    DiscoverOps,
    Done,
    EndSlot,
    EntryEnumerated,
    EnumerateEntry,
    Family,
    JudgeFamily,
    KeepSource,
    LaneOpened,
    LaneProblem,
    LaneReply,
    LaneRequest,
    ListLaneOps,
    OpenLane,
    PauseLane,
    TimeFamily,
    VerdictsFound,
    placed_jobs,
    problem_of,
)
from opsmith.runner.judge.device_lane import open_here
from opsmith.runner.machine.cores import share_of_cores
from opsmith.runner.protocol.call_files import packed
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import LaneWork, Waiting


class LaneHost:
    """Answers requests; :meth:`answer` may be called from several threads, each with a slot of its own.

    Args:
        waiting: told when another run has the device.
    """

    def __init__(self, waiting: Waiting | None = None) -> None:
        self._waiting = waiting
        self._open = contextlib.ExitStack()

    def answer(self, slot: int, request: LaneRequest) -> Iterator[LaneReply]:
        """Carry out a request, and yield the replies as they are ready."""
        try:
            yield from self._handlers[type(request)](slot, request)
            yield Done()
        except OpsmithError as exc:
            yield problem_of(exc)
        except OSError as exc:
            refused = storage_problem(exc)
            if refused is not None:
                yield problem_of(BadInput(f"{refused}, then continue with --resume and the same -o"))
            else:
                yield self._bug(exc)
        except Exception as exc:  # noqa: BLE001 - whoever asked waits for a last reply, whatever happens
            yield self._bug(exc)

    @staticmethod
    def _bug(exc: Exception) -> LaneProblem:
        return problem_of(InternalError(f"the judge of a device failed: {exc!r}\n{traceback.format_exc()}"))

    @property
    def _handlers(self) -> dict[type[LaneRequest], Callable[[int, Any], Iterator[LaneReply]]]:
        return {
            OpenLane: self._open_lane,
            ListLaneOps: lambda _seat, _request: iter([self._lane.list_ops()]),
            DiscoverOps: lambda _seat, request: iter([self._lane.discover(request.target, request.ops)]),
            EnumerateEntry: self._enumerate,
            JudgeFamily: self._judge,
            EndSlot: self._end_slot,
            TimeFamily: self._time,
            KeepSource: self._keep,
            PauseLane: self._pause,
        }

    def close(self) -> None:
        """End the lane's processes."""
        self._open.close()

    def _open_lane(self, _seat: int, request: OpenLane) -> Iterator[LaneReply]:
        work = request.work
        if not work.options.device.startswith("cpu"):
            os.sched_setaffinity(0, share_of_cores(*work.share))
        if request.inputs is not None:
            work = self._with_inputs(work, request.inputs)
        self._lane = self._open.enter_context(open_here(work, self._waiting))
        self._kernels = self._lane.spool.folder.parent / "sources"
        self._kernels.mkdir()
        yield LaneOpened(self._lane.facts)

    def _with_inputs(self, work: LaneWork, files: dict[str, bytes]) -> LaneWork:
        """The work, with the files that its selection reads where this machine has them."""
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="opsmith-inputs-")))
        write_inputs(files, folder)
        options = work.options
        selection = inputs_in(options.selection, folder)
        withheld = (*work.withheld, str(folder))
        return msgspec.structs.replace(
            work, options=msgspec.structs.replace(options, selection=selection), withheld=withheld
        )

    def _enumerate(self, slot: int, request: EnumerateEntry) -> Iterator[LaneReply]:
        enumerated = self._lane.enumerate(slot, request.asked)
        places, calls = packed(enumerated.cases, self._lane.spool)
        yield EntryEnumerated(msgspec.structs.replace(enumerated, cases=tuple(places.values())), calls)

    def _judge(self, slot: int, request: JudgeFamily) -> Iterator[LaneReply]:
        with self._received(request.family) as jobs:
            for verdict in self._lane.judge(slot, jobs, request.to_come):
                yield VerdictsFound((verdict,))

    def _end_slot(self, slot: int, _request: EndSlot) -> Iterator[LaneReply]:
        self._lane.end_slot(slot)
        yield from ()

    def _time(self, _seat: int, request: TimeFamily) -> Iterator[LaneReply]:
        with self._received(request.family) as jobs:
            for timed in self._lane.time(jobs):
                yield CaseTimed(timed, self._lane.clock)

    @contextlib.contextmanager
    def _received(self, family: Family) -> Iterator[list[Job]]:
        """The jobs of a family as this machine finds their cases and their kernel."""
        number = self._lane.spool.add(family.calls)
        try:
            yield [
                # What is here already has an absolute root, which stays what it is.
                msgspec.structs.replace(job, root=None if job.root is None else self._kernels / job.root)
                for job in placed_jobs(family, number)
            ]
        finally:
            self._lane.spool.remove(number)

    def _keep(self, _seat: int, request: KeepSource) -> Iterator[LaneReply]:
        write_inputs(request.files, self._kernels / request.name)
        yield from ()

    def _pause(self, _seat: int, _request: PauseLane) -> Iterator[LaneReply]:
        self._lane.pause()
        yield from ()


def inputs_of(selection: Selection) -> dict[str, bytes] | None:
    """The files that a selection reads, by their path below it; None if it reads only what comes with opsmith."""
    path = selection.problems or selection.dataset
    if path is None:
        return None
    root = Path(path)
    files = sorted(root.rglob("*.py")) if root.is_dir() else [root]
    return {str(file.relative_to(root.parent)): file.read_bytes() for file in files}


def inputs_in(selection: Selection, folder: Path) -> Selection:
    """A selection whose files were written to another folder."""
    if selection.problems is not None:
        return msgspec.structs.replace(selection, problems=str(folder / Path(selection.problems).name))
    assert selection.dataset is not None
    return msgspec.structs.replace(selection, dataset=str(folder / Path(selection.dataset).name))


def write_inputs(files: dict[str, bytes], folder: Path) -> None:
    """Write files that were sent, each at its path below a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
