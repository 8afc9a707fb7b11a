"""Workers that run a kernel together: one for each rank, connected before the kernel comes.

To a slot a group is what a worker is: it is asked, and it answers or has failed. A request goes to every rank with that
rank's own arguments, and the answers are put together, rank after rank. A rank that dies or hangs takes the group
with it, for the others would wait for it: the next request goes to new ranks. The nursery goes with its group: what
ranks that were killed leave in ``/dev/shm``, some 32 MiB each of NCCL's, would fill it after some thirty of them.
"""

from __future__ import annotations

import itertools
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

import msgspec

from opsmith.core.case import CallRecord, CaseRef, SequenceValue, tensor_values
from opsmith.core.fresh_values import Redraw, Variation
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema
from opsmith.core.timing import RankSpread
from opsmith.core.verdict import Status
from opsmith.runner.processes.children import Processes
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.nursery import Nursery
from opsmith.runner.processes.rank_replies import Ended, Replies, Results, ThreadResults
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.rank import RankInfo
from opsmith.runner.protocol.timing_messages import PrepareTiming
from opsmith.runner.protocol.worker_messages import (
    OUT_OF_PROTOCOL,
    Answered,
    CallToRun,
    Inspect,
    Inspected,
    LentCall,
    Noticed,
    Raised,
    Returned,
    RunCalls,
    ShowOutcomes,
    answers_all,
)

#: How long the other ranks may take once one has failed: what they say may tell more than that they were killed.
GRACE_S = 0.5
#: How long after all ranks have returned they look what was written since.
SETTLING_S = 5e-3

_DECODER = msgspec.msgpack.Decoder(CallRecord)


class MakeRank(Protocol):
    """Makes the link to a rank's worker, which has not been started."""

    def __call__(self, *, device: str, rank_info: RankInfo, nursery: Nursery | None) -> WorkerLink: ...


class RankGroup:
    """The ranks of a slot; see the module's docstring.

    Args:
        processes: whose private folders the ranks live in.
        device: torch device string; on CUDA rank r gets device r.
        make: makes a rank.
        in_groups: connect ranks in smaller groups as well.

    Attributes:
        wanted_spares: no rank is kept ready: how many are needed is known only when a case comes.
        notices: what is held against the kernel, by the ranks' answers to the last request.
        load_changes: what of Python, torch or opsmith it replaced while it was loaded.
        wall_us: of the last request, microseconds from when the first rank was asked until the last had answered.
        spread: how much earlier other ranks had.
    """

    def __init__(self, processes: Processes, device: str, make: MakeRank, *, in_groups: bool = False) -> None:
        self._processes, self._device, self._make, self._in_groups = processes, device, make, in_groups
        self._links: list[WorkerLink] = []
        self._nursery: Nursery | None = None
        self._rendezvous: Path | None = None
        self.wanted_spares = 0
        self.notices: tuple[Noticed, ...] = ()
        self.load_changes: tuple[str, ...] = ()
        self.wall_us = 0.0
        self.spread = RankSpread(0.0, 0.0)
        self._finish_by = math.inf
        self._is_watched = False

    @property
    def links(self) -> Sequence[WorkerLink]:
        """To the ranks, in their order."""
        return self._links

    def finish_by(self, deadline: float) -> None:
        """Wait for no answer of a rank beyond a moment of the monotonic clock."""
        self._finish_by = deadline
        for link in self._links:
            link.finish_by(deadline)

    def prepare(self) -> None:
        """Nothing is kept ready."""

    def expect(self, kernels: int) -> None:
        """Nothing is kept ready, whatever follows."""

    def resize(self, ranks: int | None) -> None:
        """From now on so many processes answer."""
        assert ranks is not None, "a collective's case says how many ranks it has"
        if len(self._links) == ranks:
            return
        self.retire()
        self._rendezvous = Path(tempfile.mkdtemp(prefix="ranks-", dir=self._processes.scratch))
        for rank in range(ranks):
            rank_info = RankInfo(rank=rank, ranks=ranks, rendezvous=str(self._rendezvous), in_groups=self._in_groups)
            device = f"{self._device.partition(':')[0]}:{rank}" if self._device.startswith("cuda") else self._device
            link = self._make(device=device, rank_info=rank_info, nursery=self._nursery)
            self._nursery = link.nursery
            link.finish_by(self._finish_by)
            self._links.append(link)

    def outcome_folders(self) -> tuple[str, tuple[str, ...]]:
        """Where large outcomes lie: in the private folder of each rank that answered last."""
        return "", tuple(str(link.folder) for link in self._links)

    def timed_worker(self) -> NoReturn:
        """No single process answers a collective."""
        raise AssertionError("ranks are not timed by this clock")

    def call_to_send(self, case: CaseRef, spool: Spool) -> bytes:
        """A serialized call of all ranks, to be divided among them."""
        return spool.read(case)

    def load(self, kernel: Kernel, root: Path | None, schema: OpSchema, policy: str | None = None) -> Raised | None:
        """Make sure that every rank has loaded ``kernel``; what the first of them raised if it does not load.

        Raises:
            WorkerFailed: a rank died or hung while loading.
        """
        self._is_watched = policy is not None
        problems = self._together(lambda link: link.load(kernel, root, schema, policy))
        problem = next((problem for problem in problems if problem is not None), None)
        changes = [change for link in self._links for change in link.load_changes]
        self.load_changes = tuple(dict.fromkeys(changes))
        if problem is not None:
            self.retire()
        return problem

    def ask(self, request: RunCalls | ShowOutcomes, reply_types: tuple[type[Any], ...]) -> Answered | Raised:
        """Send every rank its part of a request, and put the answers together.

        Where a rank raised in one of several calls, that is the answer: they have to be asked again one by one.

        Raises:
            WorkerFailed: a rank died, hung, broke a limit or spoke out of protocol.
        """
        assert isinstance(request, RunCalls), "ranks send no summaries"
        answers = self._answers(_divided(request, len(self._links)), reply_types)
        lost = next((answer for answer in answers if isinstance(answer, Raised)), None)
        if lost is not None:
            self.retire()
            return lost
        if not all(map(answers_all, itertools.repeat(request), answers)):
            self.retire()
            raise WorkerFailed(Status.CRASHED, OUT_OF_PROTOCOL, ())
        joined = _joined(answers)
        # A rank that raised has left the others in the middle of something, unless all have declined the call.
        of_ranks = zip(*(answer.replies for answer in answers), strict=True)
        raised = [
            reply
            for reply, own in zip(joined.replies, of_ranks, strict=True)
            if isinstance(reply, Raised) and not all(map(_declines, own))
        ]
        if raised:
            self.retire()
            if len(request.calls) > 1:
                return raised[0]  # What it answered to the calls after that may be about other calls of the others'.
            return joined
        return self._with_late_writes(joined) if self._is_watched else joined

    def ask_each(self, request: msgspec.Struct, reply_types: tuple[type[Any], ...]) -> list[Any]:
        """Send a request of the clock's to every rank; the replies, rank by rank, or alone what one of them raised.

        Raises:
            WorkerFailed: a rank died, hung, broke a limit or spoke out of protocol.
        """
        answers = self._answers(_for_each(request, len(self._links)), reply_types)
        raised = next((rank for rank, answer in enumerate(answers) if isinstance(answer, Raised)), None)
        if raised is None or not self._links:
            return answers
        self.retire()  # The others may be in the middle of something.
        return [_of_rank(raised, answers[raised])]

    def _answers(self, parts: Sequence[msgspec.Struct], reply_types: tuple[type[Any], ...]) -> list[Any]:
        """Send every rank its request, then take the answers as they come; rank by rank.

        All in this thread: threads for the ranks took up to 1.5 ms to start and to end, as long as a block.

        Raises:
            WorkerFailed: a rank failed; the one is named that the others failed for.
        """
        links = self._links
        replies = Replies(links, reply_types)
        asked = replies.ask(parts)
        found = self._gathered(asked, replies)
        answers = self._agreed(found)
        last_s = max(replies.came_s)
        if last_s < math.inf:  # Else one of them has raised, and another one was killed.
            self.wall_us = (last_s - links[0].sent_s) * 1e6
            earlier_us = [(last_s - came_s) * 1e6 for came_s in replies.came_s]
            self.spread = RankSpread(max(earlier_us), statistics.median(earlier_us))
        self.notices = tuple(notice for link in links for notice in link.notices)
        return answers

    def _with_late_writes(self, joined: Answered) -> Answered:
        """What ranks answered, and what was written since all of them had returned."""
        time.sleep(SETTLING_S)
        notices = self.notices
        answers = self._answers([Inspect()] * len(self._links), (Inspected,))
        self.notices = notices + self.notices
        found = dict.fromkeys(change for answer in answers for change in answer.changes)
        return msgspec.structs.replace(joined, changes=tuple(dict.fromkeys((*joined.changes, *found))))

    def give_memory_back(self) -> None:
        """Give the devices what the ranks keep for the next call."""
        for link in self._links:
            link.give_memory_back()

    def retire(self) -> None:
        """End all ranks; the next request goes to fresh ones."""
        for link in self._links:
            link.retire()
        self._links = []
        if self._nursery is not None:
            self._nursery.end()
        if self._rendezvous is not None:
            shutil.rmtree(self._rendezvous, ignore_errors=True)
            self._rendezvous = None

    def close(self) -> None:
        self.retire()

    def _together(self, act: Callable[[WorkerLink], Any]) -> list[Any]:
        """Do something with every rank at the same time, which takes several requests; what comes of it, rank by rank.

        Raises:
            WorkerFailed: a rank failed; the one is named that the others failed for.
        """
        ended = ThreadResults(self._links, act)
        found = self._gathered(len(self._links), ended)
        ended.join()
        return self._agreed(found)

    def _gathered(self, count: int, ranks: Results) -> list[Ended]:
        """What became of so many ranks; those that go on when one has failed are killed after a while."""
        found: list[Ended] = []
        deadline: float | None = None
        has_killed = False
        while len(found) < count:
            ended = ranks.next(deadline)
            if ended is None:
                self._kill_others(found)
                has_killed, deadline = True, None
                continue
            found.append(ended._replace(was_killed=has_killed and ended.failure is not None))
            if ended.is_bad and deadline is None and not has_killed:
                deadline = time.monotonic() + GRACE_S
        return found

    def _kill_others(self, found: Sequence[Ended]) -> None:
        done = {one.rank for one in found}
        for rank, link in enumerate(self._links):
            if rank not in done:
                link.kill()

    def _agreed(self, found: Sequence[Ended]) -> list[Any]:
        """The replies, rank by rank; where one failed, its failure, or what it raised before the others failed."""
        failed = [one for one in found if one.failure is not None]
        if not failed:
            return [one.reply for one in sorted(found)]
        cause = min(found, key=_guilt)
        raised = cause.raised
        self.retire()
        if raised is not None:
            return [_of_rank(cause.rank, raised)]
        if not isinstance(cause.failure, WorkerFailed):
            assert cause.failure is not None
            raise cause.failure
        failure = cause.failure
        detail = f"rank {cause.rank}: {failure.detail}"
        raise WorkerFailed(failure.status, detail, failure.evidence, failure.notices) from failure


def _guilt(ended: Ended) -> int:
    """Whose end explains the others': a death before what was raised, that before a time-out, and a kill last."""
    failure = ended.failure
    if failure is None:
        return 2 if ended.raised is not None else 5
    if ended.was_killed:
        return 4
    if not isinstance(failure, WorkerFailed):
        return 0
    return 3 if failure.status is Status.TIMEOUT else 1


def _of_rank(rank: int, raised: Raised) -> Raised:
    return msgspec.structs.replace(raised, message=f"rank {rank}: {raised.message}")


# ---------------------------------------------------------------- dividing and joining


def split_by_rank(record: CallRecord) -> list[CallRecord]:
    """The call of each rank, whose arguments a record of all ranks holds one after another.

    The storages keep their numbers, and those of other ranks are empty.
    """
    calls = []
    for program in record.args:
        assert isinstance(program, SequenceValue)
        own = {tensor.storage for tensor in tensor_values(program.items)}
        storages = tuple(content if number in own else b"" for number, content in enumerate(record.storages))
        calls.append(CallRecord(op=record.op, args=program.items, kwargs={}, storages=storages))
    return calls


def _divided(request: RunCalls, ranks: int) -> list[RunCalls]:
    """Each rank's part of a request."""
    divided: list[list[CallToRun]] = [[] for _ in range(ranks)]
    for call in request.calls:
        first = _encoded(call.call)
        again = [None] * ranks if call.again is None else _encoded(call.again)
        share = len(call.result_bytes) // ranks
        for rank, (own, own_again) in enumerate(zip(first, again, strict=True)):
            sizes = call.result_bytes[rank * share : (rank + 1) * share]
            divided[rank].append(msgspec.structs.replace(call, call=own, again=own_again, result_bytes=sizes))
    return [RunCalls(tuple(calls)) for calls in divided]


def _for_each(request: msgspec.Struct, ranks: int) -> Sequence[msgspec.Struct]:
    """A request for each rank: with its own part of a call, whose other storages are empty and so stay as they are."""
    if not isinstance(request, PrepareTiming):
        return [request] * ranks
    return [
        msgspec.structs.replace(
            request,
            call=msgspec.msgpack.encode(own),
            variations=tuple(
                how if content != b"" else Variation(Redraw.FIXED)
                for how, content in zip(request.variations, own.storages, strict=True)
            ),
        )
        for own in split_by_rank(_DECODER.decode(request.call))
    ]


def _encoded(call: bytes | LentCall) -> list[bytes]:
    assert isinstance(call, bytes), "ranks are lent no calls"
    return [msgspec.msgpack.encode(own) for own in split_by_rank(_DECODER.decode(call))]


def _declines(reply: Returned | Raised) -> bool:
    return isinstance(reply, Raised) and reply.kind == "unsupported"


def _joined(answers: Sequence[Answered]) -> Answered:
    """One answer of all ranks' answers; an outcome of it is the list of the ranks' outcomes, undecoded."""
    replies = [_joined_reply(replies) for replies in zip(*(answer.replies for answer in answers), strict=True)]
    changes = dict.fromkeys(change for answer in answers for change in answer.changes)
    return Answered(tuple(replies), tuple(changes))


def _joined_reply(replies: Sequence[Returned | Raised]) -> Returned | Raised:
    conduct = tuple(seen for reply in replies for seen in reply.conduct)
    raised = next(((rank, reply) for rank, reply in enumerate(replies) if isinstance(reply, Raised)), None)
    if raised is not None:
        return msgspec.structs.replace(_of_rank(*raised), conduct=conduct)
    returned = [reply for reply in replies if isinstance(reply, Returned)]
    executed: dict[str, tuple[int, ...]] = {}
    for reply in returned:
        for path, lines in reply.executed.items():
            executed[path] = tuple(sorted({*executed.get(path, ()), *lines}))
    outcomes = [
        msgspec.Raw(msgspec.msgpack.encode(list(parts)))
        for parts in zip(*(reply.outcomes for reply in returned), strict=True)
    ]
    return Returned(tuple(outcomes), conduct, executed)
