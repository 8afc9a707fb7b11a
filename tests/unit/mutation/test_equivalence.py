"""Survivors are called equivalent only if nothing that was tried tells them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opsmith.mutation.equivalence import Compared, compare

CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, -1.0]]),), {})]


def relu(x: torch.Tensor) -> torch.Tensor:
    """The original."""
    return torch.where(x <= 0, torch.zeros_like(x), x)


def compared(mutant: Callable[..., Any], original: Callable[..., Any] = relu) -> Compared:
    """The original against a mutant."""
    return compare(original, mutant, CALLS, seed=1, limit_s=30, elements=200_000)


def test_equal_functions_are_equal_on_large_inputs_too() -> None:
    """A comparison without a long row would say nothing of what is cut off behind one."""
    found = compared(lambda x: torch.where(x < 0, torch.zeros_like(x), torch.where(x == 0, torch.zeros_like(x), x)))
    assert not found.differs
    assert found.elements >= 200_000
    assert found.large


@pytest.mark.parametrize(
    "mutant",
    [
        lambda x: torch.nan_to_num(relu(x), 0.0, float("inf")),
        lambda x: torch.where(x < 0, torch.zeros_like(x), x),
        lambda x: torch.where(torch.arange(x.shape[-1]) >= 2048, torch.zeros_like(x), relu(x)),
        lambda x: relu(torch.as_strided(x, x.shape, x.contiguous().stride(), x.storage_offset())),
        lambda x: torch.where(relu(x) < torch.finfo(x.dtype).tiny, torch.zeros_like(x), relu(x)),
        lambda x: (relu(x), x.zero_())[0],
        lambda x: x if (x > 0).all() else relu(x),
        lambda x: relu(x).to(torch.float64),
    ],
    ids=["nan", "zero's sign", "long row", "strides", "denormals", "argument", "alias", "dtype"],
)
def test_what_only_special_inputs_show_is_found(mutant: Callable[..., Any]) -> None:
    """Each of these is right on ordinary contiguous values."""
    assert compared(mutant).differs


def test_a_mutant_that_raises_differs() -> None:
    """An error is an answer."""

    def raises(x: torch.Tensor) -> torch.Tensor:
        raise ValueError

    assert "ValueError" in compared(raises).differs


MASKED: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((torch.tensor([[1.0, -2.0], [0.5, 3.0]]), torch.tensor([[True, False], [False, True]])), {})
]


@pytest.mark.slow
def test_tensors_that_are_not_floating_grow_with_the_others() -> None:
    """Else nothing would be said of a mask's op beyond the sizes of its calls."""

    def filled(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.where(mask, 0.0, x)

    def cut(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        result = filled(x, mask)
        return torch.where((torch.arange(result.numel()) >= 65_536).reshape(result.shape), 0.0, result)

    assert compare(filled, filled, MASKED, seed=1, limit_s=30, elements=200_000).large
    assert compare(filled, cut, MASKED, seed=1, limit_s=30, elements=200_000).differs


@pytest.mark.slow
def test_results_of_a_large_square_are_not_made() -> None:
    """Two long dimensions that meet would take all memory: 200,000 by 200,000 elements."""
    outer: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((torch.ones(5, 1), torch.ones(1, 5)), {})]
    most = 0

    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        nonlocal most
        most = max(most, x.shape[0] * y.shape[1])
        return x * y if x.shape[0] * y.shape[1] < 10**8 else x

    assert compare(product, product, outer, seed=1, limit_s=10, elements=100_000).large
    assert 10**6 < most < 10**8
