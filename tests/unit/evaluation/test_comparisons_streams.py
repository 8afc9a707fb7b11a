"""Draws that have the right distribution element by element and are no random numbers all the same."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.evaluation_calls import call_of, leaves

from opsmith.calls.seeding import seed_of
from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.criteria.judged_call import Finding
from opsmith.evaluation.criteria.rules import rule_for

aten = torch.ops.aten
Draw = Callable[[tuple[int, ...]], torch.Tensor]
BANK = torch.rand(1 << 16, generator=torch.Generator().manual_seed(1))
_turn = itertools.count()


def _judge(overload: Any, args: tuple[Any, ...], draw: Callable[[], Any] | None = None, *, seed: int = 1) -> Finding:
    """Compare draws of ``draw``, or eager's own under other seeds, with eager's."""
    call = call_of(overload, *args)

    def eager() -> list[Any]:
        return leaves(overload(*(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)))

    repeats = rule_for(call.schema, call).repeats(eager()[0].numel())

    def under_seeds(first: int, drawn: Callable[[], Any]) -> list[Any]:
        executions = []
        for number in range(repeats):
            torch.manual_seed(seed_of(first, number, repeats))
            executions.append(leaves(drawn()))
        return executions

    return compare(call, under_seeds(seed, eager), under_seeds(seed + 10**9, draw or eager), tolerance="strict")


def _flat(draw: Callable[[int], torch.Tensor]) -> Draw:
    return lambda shape: draw(math.prod(shape)).view(shape)


def _half(other: Callable[[torch.Tensor], torch.Tensor]) -> Draw:
    def draw(count: int) -> torch.Tensor:
        half = torch.rand((count + 1) // 2)
        return torch.cat([half, other(half)])[:count]

    return _flat(draw)


def _progression(count: int) -> torch.Tensor:
    start, step = torch.rand(2).double()
    drawn: torch.Tensor = (start + step * torch.arange(count)) % 1
    return drawn.float()


def _in_turn(count: int) -> torch.Tensor:
    first = next(_turn) * count
    return BANK[(torch.arange(count) + first) % len(BANK)]


#: By what is wrong with them; all are uniform, element by element.
CHEATS: dict[str, Draw] = {
    "a bank of numbers in turn": _flat(_in_turn),
    "no seed": _flat(lambda n: torch.rand(n, generator=_fresh())),
    "a half that repeats the other": _half(lambda half: half),
    "a half that mirrors the other": _half(lambda half: half.flip(0)),
    "a half that is the other's complement": _half(lambda half: 1 - half),
    "a period": _flat(lambda n: torch.rand(16).repeat(n // 16 + 1)[:n]),
    "an arithmetic progression": _flat(_progression),
    "a grid in another order": _flat(lambda n: ((torch.arange(n) + 0.5) / n)[torch.randperm(n)]),
    "a window that moves with the seed": _flat(lambda n: BANK[torch.initial_seed() % 10_000 :][:n].clone()),
    "one of four sets": _flat(lambda n: BANK[torch.initial_seed() % 4 * n :][:n].clone()),
}


def _fresh() -> torch.Generator:
    generator = torch.Generator()
    generator.seed()
    return generator


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(8, 8), (20, 50)], ids=str)
@pytest.mark.parametrize("cheat", CHEATS)
def test_numbers_that_follow_from_each_other_fail(cheat: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Each element alone is uniform, from one execution to the next, and neighbours may be independent."""
    x = torch.zeros(shape, dtype=dtype)
    finding = _judge(aten.uniform_.default, (x, 0.0, 1.0), lambda: CHEATS[cheat](shape).to(dtype))
    assert not finding.passed


@pytest.mark.parametrize("cheat", ["a half that repeats the other", "a half that mirrors the other", "a period"])
def test_masks_that_follow_from_each_other_fail(cheat: str) -> None:
    """Bits come up twice all the time, and long sequences of them do not."""
    x = torch.randn(16, 16)

    def drop() -> tuple[torch.Tensor, torch.Tensor]:
        mask = CHEATS[cheat]((16, 16)) < 0.7
        return x * mask / 0.7, mask

    assert not _judge(aten.native_dropout.default, (x, 0.3, True), drop).passed


def test_a_mask_that_always_keeps_as_many_fails() -> None:
    """In another order each time: how many are kept is drawn too."""
    x = torch.randn(16, 16)

    def drop() -> tuple[torch.Tensor, torch.Tensor]:
        mask = (torch.arange(256) < 179)[torch.randperm(256)].view(16, 16)
        return x * mask / 0.7, mask

    assert not _judge(aten.native_dropout.default, (x, 0.3, True), drop).passed


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1,), (5, 7), (40, 50)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_eagers_own_draws_pass_under_any_seed(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Of a few values, of many, with long tails, and where each element has a distribution of its own."""
    x = torch.zeros(shape, dtype=dtype)
    for seed in (1, 5_000):
        for op, args in (
            (aten.uniform_.default, (x, 0.0, 1.0)),
            (aten.normal_.default, (x, 0.0, 1.0)),
            (aten.cauchy_.default, (x,)),
            (aten.bernoulli_.float, (x, 0.02)),
            (aten.geometric_.default, (x, 0.3)),
            (aten.bernoulli.default, (torch.linspace(0, 1, x.numel()).view(shape).to(dtype),)),
            (aten.native_dropout.default, (x + 1, 0.3, True)),
            (aten.randint.low, (0, 10, list(shape))),
            (aten.randperm.default, (x.numel(),)),
        ):
            finding = _judge(op, args, seed=seed)
            assert finding.passed, (op, finding.detail)


def test_a_generator_of_ones_own_passes_that_follows_the_seed() -> None:
    """A kernel may draw otherwise than eager: it is the random state that its numbers have to follow from."""
    x = torch.zeros(20, 50)

    def draw() -> torch.Tensor:
        own = torch.Generator().manual_seed(int(torch.randint(1 << 62, ())))
        return torch.rand(20, 50, generator=own)

    assert _judge(aten.uniform_.default, (x, 0.0, 1.0), draw).passed
