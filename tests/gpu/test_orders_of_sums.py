"""Eager adds up in another order each time on a GPU: it is right against itself, and other terms are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.evaluation_calls import call_of

from opsmith.evaluation.comparisons.compare import compare

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

aten = torch.ops.aten
Randn = Callable[..., torch.Tensor]
Call = tuple[torch._ops.OpOverload, tuple[Any, ...]]


def _grid(randn: Randn) -> Call:
    args = randn(2, 3, 24, 24), randn(2, 3, 5, 5), randn(2, 24, 24, 2) / 2, 0, 0, False, [True, True]
    return aten.grid_sampler_2d_backward.default, args


def _grid_3d(randn: Randn) -> Call:
    args = randn(1, 3, 9, 9, 9), randn(1, 3, 3, 3, 3), randn(1, 9, 9, 9, 3) / 2, 0, 0, False, [True, True]
    return aten.grid_sampler_3d_backward.default, args


def _max_pool_3d(randn: Randn) -> Call:
    image = randn(2, 3, 9, 9, 9)
    indices = torch.nn.functional.max_pool3d(image.float(), 5, 1, return_indices=True)[1]
    args = randn(*indices.shape), image, [5] * 3, [1] * 3, [0] * 3, [1] * 3, False, indices
    return aten.max_pool3d_with_indices_backward.default, args


def _places(randn: Randn, *shape: int, count: int = 5) -> torch.Tensor:
    return randn(*shape).float().mul(100).long().remainder(count)


CALLS: dict[str, Callable[[Randn], Call]] = {
    "grid_sampler_2d_backward": _grid,
    "grid_sampler_3d_backward": _grid_3d,
    "max_pool3d_with_indices_backward": _max_pool_3d,
    "index_add": lambda randn: (aten.index_add.default, (randn(5, 16), 0, _places(randn, 500), randn(500, 16))),
    "scatter_add": lambda randn: (aten.scatter_add.default, (randn(5, 16), 0, _places(randn, 500, 16), randn(500, 16))),
    "put": lambda randn: (aten.put.default, (randn(64), _places(randn, 500, count=64), randn(500), True)),
    "upsample_bilinear2d_backward": lambda randn: (
        aten.upsample_bilinear2d_backward.default,
        (randn(2, 3, 32, 32), [32, 32], [2, 3, 4, 4], False),
    ),
    "reflection_pad2d_backward": lambda randn: (
        aten.reflection_pad2d_backward.default,
        (randn(2, 3, 14, 14), randn(2, 3, 6, 6), [4] * 4),
    ),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_eager_is_right_against_itself_in_any_order(name: str, dtype: torch.dtype) -> None:
    """Forty executions of each call; half as much again in every fifth place of the gradient is none of them."""
    for seed in range(20):
        generator = torch.Generator("cuda").manual_seed(seed)
        op, args = CALLS[name](
            lambda *shape: torch.randn(shape, generator=generator, device="cuda").to(dtype)  # noqa: B023
        )
        expected = _results(op, args)
        for _ in range(2):
            finding = compare(call_of(op, *args), [expected], [_results(op, args)], tolerance="strict")
            assert finding.passed, finding.detail
        place = 0 if "backward" in name else next(n for n in (3, 2) if _is_float(args, n))
        other = list(args)
        other[place] = args[place].clone()
        other[place].view(-1)[::5] *= 1.5
        assert not compare(call_of(op, *args), [expected], [_results(op, tuple(other))], tolerance="strict").passed


def _is_float(args: tuple[Any, ...], place: int) -> bool:
    return place < len(args) and isinstance(args[place], torch.Tensor) and args[place].is_floating_point()


def _results(op: torch._ops.OpOverload, args: tuple[Any, ...]) -> list[Any]:
    returned = op(*args)
    return list(returned) if isinstance(returned, tuple) else [returned]
