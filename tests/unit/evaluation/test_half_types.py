"""What a result in a half type promises: each element near float64's, by whatever steps it is computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.evaluation_calls import judge

aten = torch.ops.aten
HALF = [torch.bfloat16, torch.float16]


def _randn(dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    return (scale * torch.randn(64, 256, generator=torch.Generator().manual_seed(5))).to(dtype)


def _exp_in_the_type(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x.float() - x.float().amax(-1, keepdim=True)).to(x.dtype).float()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def _sum_in_the_type(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x.float() - x.float().amax(-1, keepdim=True))
    total = torch.zeros(len(x), 1, dtype=x.dtype)
    for column in powers.to(x.dtype).split(1, -1):
        total = total + column
    return (powers / total.float()).to(x.dtype)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_a_rounding_or_two_on_the_way_are_within_what_a_half_type_promises(dtype: torch.dtype) -> None:
    """Torch composes ops that way where nothing fuses them, and its own tests grant it."""
    x = _randn(dtype)
    assert judge(aten.silu.default, (x,), x * torch.sigmoid(x)).passed
    assert judge(aten._softmax.default, (x, -1, False), _exp_in_the_type(x)).passed


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_a_sum_in_a_half_type_is_not(dtype: torch.dtype) -> None:
    """Its roundings grow with the number of terms."""
    assert not judge(aten._softmax.default, (_randn(dtype), -1, False), _sum_in_the_type(_randn(dtype))).passed


def test_the_logistic_function_in_steps_of_float16_is_not() -> None:
    """One over a rounded sum of a rounded power: three roundings, and 1e-3 is one of float16."""
    x = _randn(torch.float16, 8.0)
    assert not judge(aten.silu.default, (x,), x / (1 + torch.exp(-x))).passed


def _in_one_pass(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(-1) - x.mean(-1).square()


def _in_two_passes(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)).square().mean(-1)


@pytest.mark.parametrize(("dtype", "level"), [(torch.bfloat16, 248.0), (torch.float16, 1_500.0)], ids=str)
@pytest.mark.parametrize(("variance", "passes"), [(_in_one_pass, False), (_in_two_passes, True)])
def test_a_variance_in_one_pass_is_wrong_where_rows_hardly_move(
    dtype: torch.dtype, level: float, variance: Callable[[torch.Tensor], torch.Tensor], *, passes: bool
) -> None:
    """Their numbers are a step of the type apart at most, in few places: float32 squares lose what is left."""
    steps = torch.rand(64, 250, generator=torch.Generator().manual_seed(5)) < 1 / 16
    x = (level + steps).to(dtype)
    got = variance(x.float()).to(dtype)
    assert passes is judge(aten.var.correction, (x, [1]), got, correction=0).passed
    assert judge(
        aten.var.correction, (_randn(dtype), [1]), variance(_randn(dtype).float()).to(dtype), correction=0
    ).passed
