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


def _all_values(dtype: torch.dtype) -> torch.Tensor:
    order = torch.randperm(1 << 16, generator=torch.Generator().manual_seed(5))
    return (order - (1 << 15)).to(torch.int16).view(dtype)


def _cut_off(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The digits that a half type has no place for are dropped."""
    kept = {torch.bfloat16: 16, torch.float16: 13}[dtype]
    return (x.float().view(torch.int32) >> kept << kept).view(torch.float32)


def _erf_of_a_handbook(x: torch.Tensor) -> torch.Tensor:
    """Abramowitz and Stegun's 7.1.26, off by 1.5e-7."""
    t = 1 / (1 + 0.3275911 * x.abs())
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    series = sum(each * t**power for power, each in enumerate(terms, 1))
    return x.sign() * (1 - series * torch.exp(-x * x))


#: An op of one tensor, and what computes it in float32 with a constant of too few digits, or with a wrong one.
LEANING: dict[str, tuple[object, Callable[[torch.Tensor], torch.Tensor]]] = {
    "log10 with 2.3": (aten.log10.default, lambda x: x.log() / 2.3),
    "log2 with 0.693": (aten.log2.default, lambda x: x.log() / 0.693),
    "exp2 with 0.693": (aten.exp2.default, lambda x: (x * 0.693).exp()),
    "gelu with 0.707": (aten.gelu.default, lambda x: 0.5 * x * (1 + torch.erf(x * 0.707))),
    "a degree of 3.14": (aten.deg2rad.default, lambda x: x * (3.14 / 180)),
    "179 degrees": (aten.deg2rad.default, lambda x: x * (torch.pi / 179)),
    "erf with 1.13": (aten.erf.default, lambda x: torch.erf(x) * (1.13 / 1.1283791671)),
    "hardswish with 0.1667": (aten.hardswish.default, lambda x: x * (x + 3).clamp(0, 6) * 0.1667),
    "a slope of 0.01002": (aten.leaky_relu.default, lambda x: torch.where(x > 0, x, x * 0.01002)),
}
#: Likewise, and what is right all the same, given the type.
HONEST: dict[str, tuple[object, Callable[[torch.Tensor, torch.dtype], torch.Tensor]]] = {
    "silu in float32": (aten.silu.default, lambda x, _: x / (1 + torch.exp(-x))),
    "a gate that is rounded": (aten.silu.default, lambda x, t: x * torch.sigmoid(x).to(t).float()),
    "a gate that is cut off": (aten.silu.default, lambda x, t: x * _cut_off(torch.sigmoid(x), t)),
    "a result that is cut off": (aten.silu.default, lambda x, t: _cut_off(torch.nn.functional.silu(x), t)),
    "a logarithm that is cut off": (aten.log2.default, lambda x, t: _cut_off(x.log(), t) / 0.6931471805599453),
    "a logarithm that is rounded": (aten.log10.default, lambda x, t: x.log().to(t).float() * 0.4342944819),
    "erf of a handbook": (aten.gelu.default, lambda x, _: 0.5 * x * (1 + _erf_of_a_handbook(x * 0.7071067811865476))),
    "a cdf that is rounded": (aten.gelu.default, lambda x, t: x * torch.special.ndtr(x).to(t).float()),
    "softplus that is rounded": (
        aten.mish.default,
        lambda x, t: x * torch.tanh(torch.nn.functional.softplus(x).to(t).float()),
    ),
    "a slope in the type": (aten.leaky_relu.default, lambda x, t: torch.where(x > 0, x, x * torch.tensor(0.01).to(t))),
    "a root that is rounded": (aten.rsqrt.default, lambda x, t: 1 / x.sqrt().to(t).float()),
}


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", LEANING)
def test_a_scale_that_is_off_by_part_of_a_step_shows_on_all_values(name: str, dtype: torch.dtype) -> None:
    """No element is off by more than the tolerance, but nearly all that are off are so to one side."""
    op, kernel = LEANING[name]
    x = _all_values(dtype)
    assert not judge(op, (x,), kernel(x.float()).to(dtype)).passed


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", HONEST)
def test_roundings_and_digits_that_are_cut_off_do_not_lean(name: str, dtype: torch.dtype) -> None:
    """Roundings go to either side, and what is cut off is off by half a step whatever the number."""
    op, kernel = HONEST[name]
    x = _all_values(dtype)
    got, right = kernel(x.float(), dtype).to(dtype), op(x)  # type: ignore[operator]
    # Where a rounding on the way leaves the tolerance is another test's.
    near = torch.isclose(got.double(), right.double(), rtol=TOLERANCE[dtype], atol=1e-5)
    assert judge(op, (x[near],), got[near]).passed


@pytest.mark.parametrize("seed", range(4))
def test_a_rounded_gate_does_not_lean_around_zero(seed: int) -> None:
    """Rows of a ramp and of small noise: of a sigmoid next to 0 all that a step hides lies on one side."""
    noise = torch.randn(43 * 128, generator=torch.Generator().manual_seed(seed)) * 0.01
    x = torch.cat([noise, torch.linspace(-2, 2, 128), torch.full((43 * 128,), 3.0)]).bfloat16()
    assert judge(aten.silu.default, (x,), x * torch.sigmoid(x)).passed


TOLERANCE = {torch.bfloat16: 1.6e-2, torch.float16: 1e-3}
