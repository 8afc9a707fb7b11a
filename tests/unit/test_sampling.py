"""A sample is spread over the ops, and follows from its seed alone."""

from __future__ import annotations

from opsmith.core.sampling import spread_sample

BY_OP = {"many": list(range(100)), "few": [100, 101], "some": list(range(200, 210)), "none": []}


def sample(count: int, seed: int = 0) -> dict[str, list[int]]:
    """Of the items above."""
    return spread_sample(BY_OP, count, seed=seed, name=str)


def test_what_an_op_cannot_give_the_others_share() -> None:
    """Two of the op that has two, and as many of each of the others."""
    assert {"many": 5, "few": 2, "some": 5} == {op: len(drawn) for op, drawn in sample(12).items()}


def test_all_are_drawn_where_there_are_fewer() -> None:
    """In their order, and without the ops that have none."""
    assert {op: items for op, items in BY_OP.items() if items} == sample(1000)


def test_some_op_goes_without_where_there_are_more_ops_than_are_asked() -> None:
    """Never more than were asked for."""
    assert 1 == sum(map(len, sample(1).values()))


def test_a_draw_follows_from_its_seed() -> None:
    """The same again, another one with another seed, always in the items' order."""
    assert sample(12) == sample(12)
    assert sample(12) != sample(12, seed=1)
    assert all(drawn == sorted(drawn) for drawn in sample(12).values())
