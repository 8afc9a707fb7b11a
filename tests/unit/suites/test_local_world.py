"""A world of ranks in one process: torch.distributed means the same there as between processes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg

from opsmith.tasks.local_world import LocalWorld, RankFailed, rounding


def on_ranks(program: Callable[[], Any], ranks: int = 3) -> list[Any]:
    """What each rank returns."""
    return LocalWorld(ranks).run([program] * ranks)


def whole(rows: int = 3) -> torch.Tensor:
    """A matrix that differs from rank to rank."""
    return torch.arange(rows * 2.0).view(rows, 2) + 100 * dist.get_rank()


def all_reduced(op: dist.ReduceOp.RedOpType) -> torch.Tensor:
    """A rank's matrix after the reduction."""
    value = whole()
    dist.all_reduce(value, op)
    return value


def test_every_rank_is_another() -> None:
    """They know their number and their count."""
    assert [(0, 3), (1, 3), (2, 3)] == on_ranks(lambda: (dist.get_rank(), dist.get_world_size()))


@pytest.mark.parametrize(
    ("op", "factor", "offset"),
    [(dist.ReduceOp.SUM, 3, 300), (dist.ReduceOp.AVG, 1, 100), (dist.ReduceOp.MAX, 1, 200), (dist.ReduceOp.MIN, 1, 0)],
)
def test_a_reduction_is_the_same_on_all_ranks(op: dist.ReduceOp.RedOpType, factor: int, offset: int) -> None:
    """Of the matrices of ranks 0, 1 and 2, which are 100 apart."""
    expected = torch.arange(6.0).view(3, 2) * factor + offset
    for value in on_ranks(partial(all_reduced, op)):
        torch.testing.assert_close(value, expected, rtol=0, atol=0)


def test_collectives_move_what_they_say() -> None:
    """Gather, scatter, all-to-all with splits that are uneven, broadcast and reduce-scatter."""

    def program() -> tuple[torch.Tensor, ...]:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        gathered = [torch.empty(3, 2) for _ in range(ranks)]
        dist.all_gather(gathered, whole())
        sent, received = [to + 1 for to in range(ranks)], [rank + 1] * ranks
        exchanged = torch.empty(sum(received))
        dist.all_to_all_single(exchanged, torch.full((sum(sent),), float(rank)), received, sent)
        told = torch.full((2,), float(rank))
        dist.broadcast(told, 1)
        part = torch.empty(2)
        dist.reduce_scatter(part, [torch.full((2,), float(10 * rank + to)) for to in range(ranks)])
        return torch.cat(gathered), exchanged, told, part

    for rank, (gathered, exchanged, told, part) in enumerate(on_ranks(program)):
        assert [0, 100, 200] == gathered[::3, 0].tolist()
        assert [float(sender) for sender in range(3) for _ in range(rank + 1)] == exchanged.tolist()
        assert [1, 1] == told.tolist()
        assert [30 + 3 * rank] * 2 == part.tolist()


def test_messages_arrive_in_the_order_in_which_they_were_sent() -> None:
    """Whoever waits for the second one first gets the second one."""

    def program() -> list[float]:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        to, sender = (rank + 1) % ranks, (rank - 1) % ranks
        boxes = [torch.empty(1), torch.empty(1)]
        works = [dist.irecv(box, sender) for box in boxes]
        for number in range(2):
            dist.send(torch.tensor([10.0 * rank + number]), to)
        for work in reversed(works):
            assert work is not None
            work.wait()
        return [box.item() for box in boxes]

    assert [[20, 21], [0, 1], [10, 11]] == on_ranks(program)


def test_a_group_of_some_ranks_is_their_own() -> None:
    """Others take no part, and the group of all goes on beside it."""

    def program() -> float:
        group = dist.new_group([0, 2])
        value = torch.ones(1) * (dist.get_rank() + 1)
        if dist.get_rank() != 1:
            dist.all_reduce(value, group=group)
        dist.all_reduce(value)
        return value.item()

    assert [10, 10, 10] == on_ranks(program)


def test_a_rank_that_raises_is_named() -> None:
    """And the others, which wait for it, end."""

    def program() -> None:
        if dist.get_rank() == 1:
            raise ValueError("no")
        dist.barrier()

    with pytest.raises(RankFailed, match="rank 1: ValueError: no"):
        on_ranks(program)


def test_ranks_that_wait_for_each_other_are_found() -> None:
    """At once, and not after a time."""

    def program() -> None:
        if dist.get_rank() == 0:
            dist.barrier()

    with pytest.raises(RankFailed, match="wait for each other"):
        on_ranks(program)


def test_the_process_has_no_group_afterwards() -> None:
    """Nor while others use torch.distributed on their own."""
    on_ranks(dist.get_rank)
    assert not dist.is_initialized()


def test_torchs_world_of_a_thread_needs_no_list_of_communicators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch 2.11's class has none, and its code that ends groups reads one."""
    monkeypatch.delattr(multi_threaded_pg.ThreadLocalWorld, "comms", raising=False)
    assert [0, 1, 2] == on_ranks(dist.get_rank)


def test_half_types_are_rounded_after_each_rank() -> None:
    """256 + 1 + 1 is 256 in bfloat16, one after the other."""

    def program() -> float:
        value = torch.tensor([256.0 if dist.get_rank() == 0 else 1.0], dtype=torch.bfloat16)
        dist.all_reduce(value)
        return value.item()

    assert [256.0] * 3 == on_ranks(program)


def test_what_is_added_up_can_be_rounded_otherwise() -> None:
    """Each rank's term and each partial sum goes through the function."""
    seen: list[float] = []

    def noted(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor.item())
        return tensor

    def program() -> None:
        dist.all_reduce(torch.tensor([dist.get_rank() + 1.0]))

    with rounding(noted):
        on_ranks(program, 2)
    assert [1, 2, 3] * 2 == seen
