"""Sums that eager adds up in memory may be added in any order, and of no other terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from tests.evaluation_calls import call_of, judge

from opsmith.evaluation.comparisons.compare import compare

aten = torch.ops.aten
TYPES = [torch.bfloat16, torch.float16, torch.float32]


class Summed(NamedTuple):
    """A call that is linear in its argument at ``place``; with ``base``, its first argument is added as it is."""

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    place: int
    base: bool = False

    def terms(self) -> torch.Tensor:
        """What is added up, in float64: ``[terms, *result]``."""
        wide = [arg.double() if _is_float(arg) else arg for arg in self.args]
        first = [wide[0]] if self.base else []
        wide[0] = torch.zeros_like(wide[0]) if self.base else wide[0]
        summed = wide[self.place].flatten()
        for alone in torch.diag(summed):
            wide[self.place] = alone.view(self.args[self.place].shape)
            first.append(_first(self.op(*wide)))
        return torch.stack(first)

    def passes(self, expected: torch.Tensor, got: torch.Tensor) -> bool:
        """Whether one sum is taken for the other."""
        results = [[side, None] if "grid" in str(self.op) else [side] for side in (expected, got)]
        return compare(call_of(self.op, *self.args), [results[0]], [results[1]], tolerance="strict").passed


def _is_float(arg: Any) -> bool:
    return isinstance(arg, torch.Tensor) and arg.is_floating_point()


def _first(result: Any) -> torch.Tensor:
    first: torch.Tensor = result[0] if isinstance(result, tuple) else result
    return first


def _added_up(terms: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Each element in an order of its own, rounded after every addition."""
    order = torch.rand(terms.shape, generator=generator).argsort(0)
    total = torch.zeros(terms.shape[1:], dtype=dtype)
    for row in terms.gather(0, order).to(dtype):
        total = total + row
    return total


def _grid_2d(randn: Callable[..., torch.Tensor]) -> Summed:
    args = randn(1, 2, 6, 6), randn(1, 2, 4, 4), randn(1, 6, 6, 2) / 2, 0, 0, False, [True, False]
    return Summed(aten.grid_sampler_2d_backward.default, args, 0)


def _grid_3d(randn: Callable[..., torch.Tensor]) -> Summed:
    args = randn(1, 1, 4, 4, 4), randn(1, 1, 3, 3, 3), randn(1, 4, 4, 4, 3) / 2, 0, 0, False, [True, False]
    return Summed(aten.grid_sampler_3d_backward.default, args, 0)


def _max_pool_3d(randn: Callable[..., torch.Tensor]) -> Summed:
    image = randn(1, 2, 5, 5, 5)
    indices = torch.nn.functional.max_pool3d(image.float(), 3, 1, return_indices=True)[1]
    args = randn(*indices.shape), image, [3] * 3, [1] * 3, [0] * 3, [1] * 3, False, indices
    return Summed(aten.max_pool3d_with_indices_backward.default, args, 0)


def _indices(randn: Callable[..., torch.Tensor], *shape: int) -> torch.Tensor:
    return randn(*shape).float().mul(8).long().remainder(4)


SUMMED: dict[str, Callable[[Callable[..., torch.Tensor]], Summed]] = {
    "grid_sampler_2d_backward": _grid_2d,
    "grid_sampler_3d_backward": _grid_3d,
    "max_pool3d_with_indices_backward": _max_pool_3d,
    "index_add": lambda randn: Summed(
        aten.index_add.default, (randn(4, 5), 0, _indices(randn, 48), randn(48, 5)), 3, base=True
    ),
    "scatter_add": lambda randn: Summed(
        aten.scatter_add.default, (randn(4, 5), 0, _indices(randn, 48, 5), randn(48, 5)), 3, base=True
    ),
    "scatter_reduce": lambda randn: Summed(
        aten.scatter_reduce.two, (randn(4, 5), 0, _indices(randn, 48, 5), randn(48, 5), "sum"), 3, base=True
    ),
    "index_put": lambda randn: Summed(
        aten.index_put.default, (randn(4, 5), [_indices(randn, 48)], randn(48, 5), True), 2, base=True
    ),
    "embedding_dense_backward": lambda randn: Summed(
        aten.embedding_dense_backward.default, (randn(48, 5), _indices(randn, 48), 4, -1, False), 0
    ),
    "upsample_bilinear2d_backward": lambda randn: Summed(
        aten.upsample_bilinear2d_backward.default, (randn(1, 2, 8, 8), [8, 8], [1, 2, 3, 3], False), 0
    ),
    "upsample_bicubic2d_backward": lambda randn: Summed(
        aten.upsample_bicubic2d_backward.default, (randn(1, 2, 8, 8), [8, 8], [1, 2, 3, 3], False), 0
    ),
    "reflection_pad2d_backward": lambda randn: Summed(
        aten.reflection_pad2d_backward.default, (randn(1, 2, 8, 8), randn(1, 2, 4, 4), [2] * 4), 0
    ),
}


def _drawn(name: str, dtype: torch.dtype) -> Iterator[tuple[Summed, torch.Tensor, torch.Generator]]:
    """Some calls of an op, each with its terms."""
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        summed = SUMMED[name](lambda *shape: torch.randn(shape, generator=generator).to(dtype))  # noqa: B023
        yield summed, summed.terms(), generator


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", SUMMED)
def test_two_orders_of_one_sum_are_both_right(name: str, dtype: torch.dtype) -> None:
    """Eager on a GPU adds in whatever order its threads come."""
    for summed, terms, generator in _drawn(name, dtype):
        one, other = (_added_up(terms, dtype, generator) for _ in range(2))
        assert summed.passes(one, other)
        assert summed.passes(one, terms.sum(0).to(dtype))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", SUMMED)
def test_a_sum_of_which_some_terms_have_another_coefficient_is_wrong(name: str, dtype: torch.dtype) -> None:
    """However it is added up."""
    for summed, terms, generator in _drawn(name, dtype):
        every_fifth = (torch.arange(len(terms)) % 5 == 0).view(-1, *[1] * (terms.dim() - 1))
        wrong = _added_up(torch.where(every_fifth, 1.3 * terms, terms), dtype, generator)
        assert not summed.passes(_added_up(terms, dtype, generator), wrong)


def test_an_eager_that_adds_in_a_wider_type_does_not_excuse_additions_in_the_results() -> None:
    """What is known of eager is what it shows: here that it adds in float32."""
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(4, (4096,), generator=generator)
    source = torch.randn(4096, 8, generator=generator).bfloat16()
    summed = Summed(aten.index_add.default, (torch.zeros(4, 8).bfloat16(), 0, indices, source), 3)
    accurate = torch.zeros(4, 8).index_add(0, indices, source.float()).bfloat16()
    rough = torch.zeros(4, 8).bfloat16()
    for place, row in zip(indices.tolist(), source, strict=True):
        rough[place] += row
    assert not summed.passes(accurate, rough)
    assert summed.passes(rough, accurate)


def test_no_order_of_a_sum_makes_a_number_of_an_infinity() -> None:
    """The walk of an infinite sum is infinite, which grants nothing."""
    x, index = torch.zeros(4), torch.tensor([0, 1, 1, 2])
    source = torch.tensor([1.0, torch.inf, 2.0, 3.0])
    right = torch.ops.aten.index_add.default(x, 0, index, source)
    cut = right.clamp(max=torch.finfo(torch.float32).max)
    assert judge(torch.ops.aten.index_add.default, (x, 0, index, source), right.clone()).passed
    assert not judge(torch.ops.aten.index_add.default, (x, 0, index, source), cut).passed
