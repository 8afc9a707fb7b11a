"""A world of ranks in one process: threads that take turns, and a process group that copies between them.

``torch.distributed`` means that group in each of the threads, so whatever is written for ranks runs unchanged: the
references of parallel problems run here in the referee, in any dtype. Reductions round after each rank, as those of
gloo and NCCL do; the oracle runs the same in float64. One rank runs at a time, until it waits for another or ends: so
every run has the same order, and a deadlock is seen at once.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.testing._internal.distributed import multi_threaded_pg
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

#: The name under which torch knows the kind of group.
BACKEND = "opsmith_local"
#: Its stubs have overloads that no class in Python can repeat.
_ProcessGroup: Any = dist.ProcessGroup
#: See :func:`rounding`.
_rounded: Callable[[torch.Tensor], torch.Tensor] | None = None
#: Nothing here waits for a clock.
_NEVER = timedelta(hours=1)
_REDUCTIONS: dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.AVG: torch.add,
    dist.ReduceOp.MAX: torch.maximum,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}


class RankFailed(RuntimeError):
    """What a rank raised, with the rank's number."""


class _Abandoned(BaseException):
    """Ends the threads of the other ranks when one has failed."""


class LocalWorld:
    """So many ranks in this process.

    Args:
        ranks: how many there are.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._turn = threading.Condition()
        self._current = 0
        self._waiting: dict[int, Callable[[], bool]] = {}
        self._ended: set[int] = set()
        self._failure: BaseException | None = None
        #: What ranks have said to each other: messages by sender, receiver and number.
        self.said: dict[tuple[Any, ...], Any] = {}

    def run(self, programs: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run a program as each rank; what each returns.

        Raises:
            RankFailed: one raised; caused by what it raised. Or all wait for each other.
        """
        assert len(programs) == self._ranks
        results: list[Any] = [None] * self._ranks
        modes = _get_current_dispatch_mode_stack()
        grad = torch.is_grad_enabled()
        store = HashStore()

        def rank_thread(rank: int) -> None:
            try:
                self._begin(rank)
                with contextlib.ExitStack() as stack:
                    stack.enter_context(torch.set_grad_enabled(grad))
                    stack.enter_context(torch.autograd.set_multithreading_enabled(False))
                    stack.enter_context(_rank_of(self, rank, self._ranks, store))
                    for mode in modes:
                        stack.enter_context(mode)
                    results[rank] = programs[rank]()
            except _Abandoned:
                pass
            except BaseException as exc:  # noqa: BLE001 - raised again by the thread that waits
                self._fail(rank, exc)
            finally:
                self._end(rank)

        threads = [threading.Thread(target=rank_thread, args=(rank,), daemon=True) for rank in range(self._ranks)]
        with _threads_are_ranks():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if self._failure is not None:
            raise self._failure
        return results

    def wait(self, rank: int, until: Callable[[], bool]) -> None:
        """Let others run until something is true."""
        with self._turn:
            self._waiting[rank] = until
            if not until():
                self._pass_on(rank)
                self._turn.wait_for(lambda: self._current == rank or self._failure is not None)
            del self._waiting[rank]
            if self._failure is not None:
                raise _Abandoned

    def _begin(self, rank: int) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._current == rank or self._failure is not None)
            if self._failure is not None:
                raise _Abandoned

    def _end(self, rank: int) -> None:
        with self._turn:
            self._ended.add(rank)
            self._pass_on(rank)

    def _pass_on(self, rank: int) -> None:
        """Give the turn to the next rank that can go on."""
        for other in [*range(rank + 1, self._ranks), *range(rank + 1)]:
            if other not in self._ended and self._waiting.get(other, lambda: True)():
                self._current = other
                break
        else:
            if len(self._ended) < self._ranks and self._failure is None:
                self._failure = RankFailed(f"ranks {sorted(self._waiting)} wait for each other")
        self._turn.notify_all()

    def _fail(self, rank: int, exc: BaseException) -> None:
        with self._turn:
            if self._failure is None:
                line = " ".join(str(exc).split())
                self._failure = RankFailed(f"rank {rank}: {type(exc).__name__}: {line}")
                self._failure.__cause__ = exc


# ---------------------------------------------------------------- threads as ranks


#: Whether a group's name means another group in each thread.
_names_by_thread: Any = getattr(torch._C._distributed_c10d, "_set_thread_isolation_mode")  # noqa: B009 - no stub
_here = threading.local()
_install = threading.RLock()


class _WorldOfThread(multi_threaded_pg.ThreadLocalWorld):
    """Torch's groups of a thread, with the list of communicators that making and ending a group reads.

    Torch 2.11's own class has no such list.
    """

    @property
    def comms(self) -> list[Any]:
        if not hasattr(_here, "comms"):
            _here.comms = []
        return _here.comms  # type: ignore[no-any-return]


@contextlib.contextmanager
def _threads_are_ranks() -> Iterator[None]:
    """Within, each thread has a default group of its own; of one world at a time."""
    with _install:
        if BACKEND not in dist.Backend.backend_list:
            dist.Backend.register_backend(BACKEND, _make_group, devices=["cpu", "cuda"])
        multi_threaded_pg._install_threaded_pg()
        vars(dist.distributed_c10d)["_world"] = _WorldOfThread()
        _names_by_thread(True)
        try:
            yield
        finally:
            _names_by_thread(False)
            multi_threaded_pg._uninstall_threaded_pg()


@contextlib.contextmanager
def _rank_of(world: LocalWorld, rank: int, ranks: int, store: Any) -> Iterator[None]:
    """Within, this thread is a rank of the default group."""
    _here.world, _here.rank = world, rank
    dist.init_process_group(BACKEND, store=store, rank=rank, world_size=ranks, timeout=_NEVER)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _make_group(_store: Any, rank: int, ranks: int, _timeout: timedelta) -> Group:
    return Group(rank, ranks, _here.world, _here.rank)


# ruff: noqa: ARG002 - torch passes its options by name
class Group(_ProcessGroup):  # type: ignore[misc]
    """Some ranks of a world; a collective returns when its result is there.

    Its methods bear the names of all supported versions of torch.

    Args:
        rank: this thread's rank within the group.
        ranks: of the group.
        world: they are in.
        thread: this thread's rank in the world.
    """

    def __init__(self, rank: int, ranks: int, world: LocalWorld, thread: int) -> None:
        super().__init__(rank, ranks)
        self._rank, self._ranks, self._world, self._thread = rank, ranks, world, thread
        self._calls = itertools.count()
        self._posted: dict[tuple[Any, ...], Iterator[int]] = {}

    # -------------------------------------------------------- what torch asks a group

    def size(self) -> int:
        return self._ranks

    def rank(self) -> int:
        return self._rank

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return BACKEND

    @property
    def group_name(self) -> str:
        name: str = dist.distributed_c10d._world.pg_names[self]
        return name

    @property
    def pg_name(self) -> str:
        return self.group_name

    # -------------------------------------------------------- collectives

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        of_ranks = self._exchange(list(tensors))
        for number, tensor in enumerate(tensors):
            tensor.copy_(_reduced([own[number] for own in of_ranks], opts))
        return _done(list(tensors))

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any) -> dist.Work:
        of_ranks = self._exchange(list(tensors))
        for tensor, sent in zip(tensors, of_ranks[opts.rootRank], strict=True):
            tensor.copy_(sent)
        return _done(list(tensors))

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> dist.Work:
        of_ranks = self._exchange(list(tensors))
        if self._rank == opts.rootRank:
            for number, tensor in enumerate(tensors):
                tensor.copy_(_reduced([own[number] for own in of_ranks], opts))
        return _done(list(tensors))

    def allgather(self, outputs: Sequence[Any], inputs: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        of_ranks = self._exchange(list(inputs))
        for number, of_input in enumerate(outputs):
            for output, sent in zip(of_input, of_ranks, strict=True):
                output.copy_(sent[number].view(output.shape))
        return _done([tensor for of_input in outputs for tensor in of_input])

    def all_gather_single(self, output: torch.Tensor, sent: torch.Tensor, opts: Any = None) -> dist.Work:
        of_ranks = self._exchange(sent)
        output.copy_(torch.cat([each.reshape(-1) for each in of_ranks]).view(output.shape))
        return _done([output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> dist.Work:
        for output, sent in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, sent)
        return _done(list(outputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Any], opts: Any) -> dist.Work:
        of_ranks = self._exchange([list(parts) for parts in inputs])
        for number, output in enumerate(outputs):
            output.copy_(_reduced([own[number][self._rank] for own in of_ranks], opts).view(output.shape))
        return _done(list(outputs))

    def reduce_scatter_single(self, output: torch.Tensor, whole: torch.Tensor, opts: Any) -> dist.Work:
        of_ranks = self._exchange(whole)
        own = [each.reshape(-1).chunk(self._ranks)[self._rank] if each.numel() else each for each in of_ranks]
        output.copy_(_reduced(own, opts).view(output.shape))
        return _done([output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any
    ) -> dist.Work:
        for output, whole in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, whole, opts)
        return _done(list(outputs))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> dist.Work:
        of_ranks = self._exchange(list(inputs))
        for output, sent in zip(outputs, of_ranks, strict=True):
            output.copy_(sent[self._rank].view(output.shape))
        return _done(list(outputs))

    def all_to_all_single(
        self,
        output: torch.Tensor,
        whole: torch.Tensor,
        received: Sequence[int] | None,
        sent: Sequence[int] | None,
        opts: Any = None,
    ) -> dist.Work:
        of_ranks = self._exchange((whole, list(sent or [])))
        parts = [_part(each, splits, self._rank, self._ranks) for each, splits in of_ranks]
        if received:
            assert [len(part) for part in parts] == list(received), "ranks disagree about what they send each other"
        output.copy_(torch.cat([part.reshape(-1) for part in parts]).view(output.shape))
        return _done([output])

    alltoall_base = all_to_all_single

    def gather(self, outputs: Sequence[Any], inputs: Sequence[torch.Tensor], opts: Any) -> dist.Work:
        of_ranks = self._exchange(list(inputs))
        if self._rank == opts.rootRank:
            for number, of_input in enumerate(outputs):
                for output, sent in zip(of_input, of_ranks, strict=True):
                    output.copy_(sent[number])
        return _done([tensor for of_input in outputs for tensor in of_input])

    def scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Any], opts: Any) -> dist.Work:
        of_ranks = self._exchange([list(parts) for parts in inputs])
        for number, output in enumerate(outputs):
            output.copy_(of_ranks[opts.rootRank][number][self._rank])
        return _done(list(outputs))

    def barrier(self, opts: Any = None) -> dist.Work:
        self._exchange(None)
        return _done([])

    # -------------------------------------------------------- messages between two ranks

    def send(self, tensors: Sequence[torch.Tensor], to: int, tag: int = 0) -> dist.Work:
        self._world.said[self._message(self._rank, to, tag)] = _copied(list(tensors))
        return _done(list(tensors))

    def recv(self, tensors: Sequence[torch.Tensor], sender: int, tag: int = 0) -> dist.Work:
        return _Receipt(self._world, self._thread, self._message(sender, self._rank, tag), list(tensors))

    def _message(self, sender: int, receiver: int, tag: int) -> tuple[Any, ...]:
        """The key of the next message from one to another: they arrive in the order in which they are sent."""
        which = (self.group_name, sender, receiver, tag)
        return (*which, next(self._posted.setdefault(which, itertools.count())))

    # -------------------------------------------------------- how

    def _exchange(self, own: Any) -> list[Any]:
        """Give all ranks of the group a copy of something, and get theirs, rank by rank."""
        said, call = self._world.said, (self.group_name, "call", next(self._calls))
        keys = [(*call, rank) for rank in range(self._ranks)]
        said[keys[self._rank]] = _copied(own)
        self._world.wait(self._thread, lambda: all(key in said for key in keys))
        return [said[key] for key in keys]


class _Receipt(dist.Work):
    """A message that is taken when it is waited for."""

    def __init__(self, world: LocalWorld, thread: int, key: tuple[Any, ...], tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._world, self._thread, self._key, self._tensors = world, thread, key, tensors

    def wait(self, timeout: timedelta | None = None) -> bool:
        if self._tensors:
            self._world.wait(self._thread, lambda: self._key in self._world.said)
            for tensor, sent in zip(self._tensors, self._world.said.pop(self._key), strict=True):
                tensor.copy_(sent.view(tensor.shape))
            self._tensors = []
        return True

    def is_completed(self) -> bool:
        return not self._tensors or self._key in self._world.said


def _done(tensors: list[torch.Tensor]) -> dist.Work:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(tensors)
    done: dist.Work = getattr(torch._C._distributed_c10d, "_create_work_from_future")(future)  # noqa: B009 - no stub
    return done


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.contiguous_format)
    return type(value)(map(_copied, value)) if isinstance(value, (list, tuple)) else value


def _reduced(tensors: Sequence[torch.Tensor], opts: Any) -> torch.Tensor:
    """As an all-reduce does it; without options a sum."""
    operation = dist.ReduceOp.SUM if opts is None else getattr(opts.reduceOp, "op", opts.reduceOp)
    combine, rounded = _REDUCTIONS[operation], _rounded
    if rounded is not None and operation not in (dist.ReduceOp.MAX, dist.ReduceOp.MIN):
        tensors = [rounded(tensor) for tensor in tensors]
        result = functools.reduce(lambda one, other: rounded(combine(one, other)), tensors)
    else:
        result = functools.reduce(combine, tensors)
    return result / len(tensors) if operation == dist.ReduceOp.AVG else result


@contextlib.contextmanager
def rounding(rounded: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Within, what ranks add up goes through ``rounded``: each rank's term, and each partial sum."""
    global _rounded  # noqa: PLW0603 - groups are made by torch, and know nobody
    _rounded = rounded
    try:
        yield
    finally:
        _rounded = None


def _part(whole: torch.Tensor, splits: Sequence[int], rank: int, ranks: int) -> torch.Tensor:
    """What a rank gets of another's tensor."""
    return whole.split(splits or len(whole) // ranks)[rank] if len(whole) or splits else whole
