"""Which differences from eager its own repetitions explain."""

from __future__ import annotations

import pytest
import torch
from tests.evaluation_calls import WithoutUnsigned

from opsmith.evaluation.comparisons.stability import REPETITIONS, stabilised

N = 1_000


def explained(got: torch.Tensor, expected: torch.Tensor, repeated: list[torch.Tensor]) -> torch.Tensor:
    """For each element whether eager's takes the place of ``got``."""
    stable = stabilised(expected, got, repeated)
    return (got if stable is None else stable) == expected


def noisy(expected: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One execution of an eager that is off by a hundredth, except at element 0."""
    values = expected + 0.01 * torch.randn(N, generator=generator)
    values[0] = expected[0]
    return values


def test_an_element_on_which_all_repetitions_agreed_may_vary_as_the_others_do() -> None:
    """An order of atomic additions that did not come up in 17 executions may come up in the 18th."""
    generator = torch.Generator().manual_seed(1)
    expected = torch.randn(N, generator=generator)
    repeated = [noisy(expected, generator) for _ in range(REPETITIONS)]
    got = noisy(expected, generator)
    got[0] += 0.02
    assert bool(explained(got, expected, repeated).all())
    got[0] += 1.0
    assert [0] == (~explained(got, expected, repeated)).nonzero().flatten().tolist()


def test_nothing_is_explained_where_eager_repeats_itself() -> None:
    """The smallest difference from a deterministic eager is the candidate's own."""
    expected = torch.linspace(0, 1, N)
    got = expected + 1e-6
    assert torch.equal(explained(got, expected, [expected] * REPETITIONS), got == expected)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_seeds_that_eager_draws_anew_are_excused_in_every_width(dtype: torch.dtype) -> None:
    """Attention returns uint64 seeds on a GPU; torch 2.11 selects no unsigned numbers of more than 8 bits."""
    expected, got = torch.tensor([7, 3], dtype=dtype), torch.tensor([9, 3], dtype=dtype)
    repeated = [torch.tensor([100 * (turn + 1), 3], dtype=dtype) for turn in range(REPETITIONS)]
    with WithoutUnsigned():
        stable = stabilised(expected, got, repeated)
        wrong = stabilised(expected, torch.tensor([9, 4], dtype=dtype), repeated)
    assert stable is not None
    assert wrong is not None
    assert (dtype, [7, 3]) == (stable.dtype, stable.tolist())
    assert [7, 4] == wrong.tolist()
