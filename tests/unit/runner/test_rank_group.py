"""A group of ranks answers like one worker, and the rank that failed first is named; its links are stand-ins."""

from __future__ import annotations

import contextlib
import math
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch

from opsmith.calls.outcomes import HeldOutcome
from opsmith.core.case import CallRecord, Outcome, OutputTensor, SequenceValue, TensorValue
from opsmith.core.fresh_values import Redraw, Variation
from opsmith.core.verdict import Status
from opsmith.runner.child.outcome_files import OutcomeWriter, read_call, read_outcome_of_ranks
from opsmith.runner.processes import rank_group, rank_replies
from opsmith.runner.processes.children import Processes
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.rank_group import RankGroup, split_by_rank
from opsmith.runner.protocol.rank import RankInfo
from opsmith.runner.protocol.timing_messages import BlockTimed, PrepareTiming, TimeBlock
from opsmith.runner.protocol.worker_messages import Answered, CallToRun, Raised, Returned, RunCalls


def tensor(storage: int) -> TensorValue:
    """Two bytes of a storage."""
    return TensorValue(storage, "u8", (2,), (1,), 0, "cpu")


def program(*storages: int) -> SequenceValue:
    """What a rank is asked: one call with these tensors."""
    call = SequenceValue(tuple(map(tensor, storages)), is_tuple=True)
    return SequenceValue((SequenceValue((call,), is_tuple=False), SequenceValue((0,), is_tuple=False), False), True)


RECORD = CallRecord(
    op="all_reduce.default", args=(program(0, 1), program(2)), kwargs={}, storages=(b"ab", b"cd", b"ef")
)


def test_a_rank_gets_its_own_arguments_only() -> None:
    """Storages keep their numbers, so what ranks say of them can be put together."""
    first, second = split_by_rank(RECORD)
    assert (b"ab", b"cd", b"") == first.storages
    assert (b"", b"", b"ef") == second.storages
    assert program(2).items == second.args


def outcome(data: bytes, **fields: Any) -> Outcome:
    """Of a call that returned one tensor."""
    output = OutputTensor("u8", (len(data),), (1,), 0, "cpu", "strided", None, fields.pop("output", None), data)
    return Outcome(structure="(*)", outputs=(output,), changed=fields.pop("changed", {}))


def test_the_outcomes_of_all_ranks_are_one_outcome(tmp_path: Path) -> None:
    """Large ones lie in the folders of the ranks that wrote them."""
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder in folders:
        folder.mkdir()
    large = bytes(2 << 20)
    parts = [
        OutcomeWriter(folder).encode(HeldOutcome.of(outcome(data)))
        for folder, data in zip(folders, (large, b"x"), strict=True)
    ]
    joined = read_outcome_of_ranks(msgspec.Raw(msgspec.msgpack.encode(parts)), folders, torch.device("cpu"))
    assert "((*),(*))" == joined.form.structure
    assert (large, b"x") == joined.elements


def test_results_that_share_memory_are_counted_within_their_rank() -> None:
    """Number 0 of the second rank is number 1 of all."""
    parts = [outcome(b"a", changed={0: b"xy"}), outcome(b"b", output=0, changed={2: b"zz"})]
    message = msgspec.msgpack.encode([msgspec.Raw(msgspec.msgpack.encode(part)) for part in parts])
    joined = read_outcome_of_ranks(msgspec.Raw(message), [Path(), Path()], torch.device("cpu"))
    assert [None, 1] == [cast("OutputTensor", output).output for output in joined.form.outputs]
    assert {0: b"xy", 2: b"zz"} == joined.changed


class StandInLink:
    """A rank that does as it is told when it is asked.

    Args:
        act: what it does; it may wait for ``killed``.

    Attributes:
        heard: whether one of its messages has been taken.
        deadline: until when it is waited for.
        messages: that it has to give: replies, notices (None) and failures.
    """

    def __init__(self, act: Callable[[StandInLink], Any]) -> None:
        self.nursery = SimpleNamespace(end=lambda: setattr(self, "nursery_ended", True))
        self.nursery_ended = False
        self.notices: tuple[Any, ...] = ()
        self.load_changes: tuple[str, ...] = ()
        self.killed, self.heard = threading.Event(), threading.Event()
        self.retired = False
        self.asked: list[Any] = []
        self.deadline = math.inf
        self.sent_s = 0.0
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._act = act
        self._ours, self._theirs = socket.socketpair()

    def finish_by(self, deadline: float) -> None:
        """It is never late."""

    def send(self, request: Any) -> None:
        self.asked.append(request)
        self.sent_s = time.perf_counter()
        self.deadline = time.monotonic() + 30
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        try:
            self.say(self._act(self))
        except WorkerFailed as failure:
            self.say(failure)

    def say(self, message: Any) -> None:
        """Have a message ready."""
        self.messages.put(message)
        with contextlib.suppress(OSError):  # The test is over.
            self._theirs.send(b"x")

    def receive(self, _types: object) -> Any:
        if time.monotonic() >= self.deadline:
            raise WorkerFailed(Status.TIMEOUT, "no answer", ())
        self._ours.recv(1)
        message = self.messages.get_nowait()
        if isinstance(message, WorkerFailed):
            raise message
        self.heard.set()
        return message

    def is_overdue(self) -> bool:
        return time.monotonic() >= self.deadline

    def fileno(self) -> int:
        return self._ours.fileno()

    def kill(self) -> None:
        self.killed.set()

    def retire(self) -> None:
        self.retired = True

    def close(self) -> None:
        self.kill()
        self._ours.close()
        self._theirs.close()


def answers(_link: StandInLink) -> Answered:
    """One outcome."""
    return Answered((Returned((msgspec.Raw(msgspec.msgpack.encode(outcome(b"x"))),)),))


def raises(_link: StandInLink) -> Answered:
    """What a kernel raised."""
    return Answered((Raised("error", "ValueError: no", ""),))


def fails(status: Status) -> Callable[[StandInLink], Any]:
    """End like that."""

    def fail(_link: StandInLink) -> None:
        raise WorkerFailed(status, f"it was {status}", ())

    return fail


def waits(link: StandInLink) -> None:
    """For a rank that never comes, until it is killed."""
    assert link.killed.wait(20)
    raise WorkerFailed(Status.CRASHED, "it was killed", ())


REQUEST = RunCalls((CallToRun(msgspec.msgpack.encode(RECORD), 0),))


Make = Callable[..., tuple[RankGroup, list[StandInLink]]]


@pytest.fixture
def group_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make a group of ranks that act so."""
    made: list[StandInLink] = []
    monkeypatch.setattr(rank_group, "GRACE_S", 0.05)

    def make(*acts: Callable[[StandInLink], Any]) -> tuple[RankGroup, list[StandInLink]]:
        links: list[StandInLink] = []

        def make_rank(*, device: str, rank_info: RankInfo, nursery: object) -> Any:
            assert "cpu" == device
            assert (len(links), len(acts)) == (rank_info.rank, rank_info.ranks)
            assert nursery is (links[-1].nursery if links else None)
            links.append(StandInLink(acts[rank_info.rank]))
            made.append(links[-1])
            return links[-1]

        group = RankGroup(cast("Processes", SimpleNamespace(scratch=tmp_path)), "cpu", make_rank)
        group.resize(len(acts))
        return group, links

    yield make
    for link in made:
        link.close()


def test_the_nursery_ends_with_its_group(group_of: Make) -> None:
    """What ranks left in the memory that they share does not pile up, and the next group does not find it."""
    group, (_, link) = group_of(answers, answers)
    group.ask(REQUEST, (Answered, Raised))
    assert not link.nursery_ended
    group.retire()
    assert link.nursery_ended


def test_each_rank_is_asked_for_its_part(group_of: Make) -> None:
    """And answers are joined execution by execution."""
    group, links = group_of(answers, answers)
    answer = group.ask(REQUEST, (Answered, Raised))
    assert isinstance(answer, Answered)
    [reply] = answer.replies
    assert isinstance(reply, Returned)
    assert 2 == len(msgspec.msgpack.decode(reply.outcomes[0]))
    assert split_by_rank(RECORD) == [read_call(link.asked[0].calls[0].call) for link in links]
    assert not any(link.retired for link in links)


@pytest.mark.parametrize(
    ("acts", "status", "detail"),
    [
        ((waits, fails(Status.CRASHED)), Status.CRASHED, "rank 1: it was CRASHED"),
        ((raises, fails(Status.CRASHED)), Status.CRASHED, "rank 1: it was CRASHED"),
        ((fails(Status.TIMEOUT), answers), Status.TIMEOUT, "rank 0: it was TIMEOUT"),
        ((fails(Status.TIMEOUT), fails(Status.OUT_OF_MEMORY)), Status.OUT_OF_MEMORY, "rank 1: it was OUT_OF_MEMORY"),
    ],
)
def test_the_rank_that_failed_first_is_named(group_of: Make, acts: Any, status: Status, detail: str) -> None:
    """Not one that waited for it, nor one that raised because it was gone."""
    group, links = group_of(*acts)
    with pytest.raises(WorkerFailed) as caught:
        group.ask(REQUEST, (Answered, Raised))
    assert (status, detail) == (caught.value.status, caught.value.detail)
    assert all(link.retired for link in links)


def test_what_a_rank_raised_is_the_answer_while_the_others_wait_for_it(group_of: Make) -> None:
    """They are killed, and the next request goes to new ranks."""
    group, links = group_of(waits, raises)
    answer = group.ask(REQUEST, (Answered, Raised))
    assert isinstance(answer, Raised)
    assert "rank 1: ValueError: no" == answer.message
    assert all(link.retired for link in links)


def test_ranks_that_all_decline_are_asked_again(group_of: Make) -> None:
    """None of them is in the middle of anything."""

    def declines(_link: StandInLink) -> Answered:
        return Answered((Raised("unsupported", "NotImplementedError: sparse", ""),))

    group, links = group_of(declines, declines)
    answer = group.ask(REQUEST, (Answered, Raised))
    assert isinstance(answer, Answered)
    assert not any(link.retired for link in links)


def test_calls_after_one_that_raised_are_asked_again(group_of: Make) -> None:
    """A rank that raised goes on to the next call while the others are still in that one."""

    def raises_first(link: StandInLink) -> Answered:
        return Answered((*raises(link).replies, *answers(link).replies))

    def answers_twice(link: StandInLink) -> Answered:
        return Answered(answers(link).replies * 2)

    group, links = group_of(raises_first, answers_twice)
    answer = group.ask(RunCalls(REQUEST.calls * 2), (Answered, Raised))
    assert isinstance(answer, Raised)
    assert all(link.retired for link in links)


def test_a_rank_that_answers_something_else_is_out_of_protocol(group_of: Make) -> None:
    """It has one outcome too few."""
    group, links = group_of(answers, lambda _link: Answered((Returned(()),)))
    with pytest.raises(WorkerFailed, match="not of the protocol"):
        group.ask(REQUEST, (Answered, Raised))
    assert all(link.retired for link in links)


# ---------------------------------------------------------------- requests of the clock


def takes(seconds: float, *, own_us: float = 1.0) -> Callable[[StandInLink], BlockTimed]:
    """A block that lasts so long."""

    def take(_link: StandInLink) -> BlockTimed:
        time.sleep(seconds)
        return BlockTimed(own_us)

    return take


BLOCK = TimeBlock(1, "E")


def test_a_block_lasts_until_the_last_rank_has_answered(group_of: Make) -> None:
    """And how much earlier the others had is known."""

    def is_last(_link: StandInLink) -> BlockTimed:
        assert all(link.heard.wait(20) for link in links[:2])
        time.sleep(0.06)
        return BlockTimed(1.0)

    group, links = group_of(takes(0.0), takes(0.0), is_last)
    replies = group.ask_each(BLOCK, (BlockTimed,))
    assert [BlockTimed(1.0)] * 3 == replies
    assert [[BLOCK]] * 3 == [link.asked for link in links]
    assert group.wall_us >= 60_000
    assert 50_000 < group.spread.first_us <= group.wall_us
    assert 50_000 < group.spread.median_us <= group.spread.first_us


def test_ranks_are_asked_and_heard_by_the_thread_that_asks(group_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread for each takes as long as a block."""
    group, _ = group_of(answers, answers)
    monkeypatch.setattr(rank_replies, "threading", None)
    group.ask(REQUEST, (Answered, Raised))


def test_a_notice_is_no_reply(group_of: Make) -> None:
    """The rank that told something still has to answer."""

    def tells(link: StandInLink) -> BlockTimed:
        link.say(None)
        time.sleep(0.05)
        return BlockTimed(2.0)

    group, _ = group_of(tells, takes(0.0))
    assert [BlockTimed(2.0), BlockTimed(1.0)] == group.ask_each(BLOCK, (BlockTimed,))
    assert group.wall_us >= 50_000


def test_a_rank_that_hangs_in_a_block_times_out(group_of: Make) -> None:
    """The others, which have answered, wait for it no longer than its limit."""

    def hangs(link: StandInLink) -> None:
        link.deadline = time.monotonic() + 0.1
        link.killed.wait(20)

    group, links = group_of(takes(0.0), hangs)
    with pytest.raises(WorkerFailed) as caught:
        group.ask_each(BLOCK, (BlockTimed,))
    assert (Status.TIMEOUT, "rank 1: no answer") == (caught.value.status, caught.value.detail)
    assert all(link.retired for link in links)


def test_each_rank_prepares_its_own_part_of_a_call(group_of: Make) -> None:
    """What lies in the others' memory stays as it is."""
    how = tuple([Variation(Redraw.BLENDED)] * 3)
    group, links = group_of(takes(0.0), takes(0.0))
    group.ask_each(PrepareTiming(msgspec.msgpack.encode(RECORD), 8, how), (BlockTimed,))
    of_ranks = [link.asked[0] for link in links]
    assert split_by_rank(RECORD) == [msgspec.msgpack.decode(one.call, type=CallRecord) for one in of_ranks]
    blended = [[variation.how is Redraw.BLENDED for variation in one.variations] for one in of_ranks]
    assert [[True, True, False], [False, False, True]] == blended
