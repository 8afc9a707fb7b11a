"""Results far below the absolute tolerance: a kernel that loses them is wrong where eager has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.evaluation_calls import judge, schema_of

from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.criteria.judged_call import JudgedCall

aten = torch.ops.aten


def _spread(dtype: torch.dtype) -> torch.Tensor:
    """Both signs, evenly over the powers of two from -20 to 6."""
    generator = torch.Generator().manual_seed(7)
    exponents = torch.empty(1 << 14).uniform_(-20, 6.4, generator=generator)
    return (torch.exp2(exponents) * (torch.randint(0, 2, exponents.shape, generator=generator) * 2 - 1)).to(dtype)


def _softplus(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 20, x, torch.log(1 + torch.exp(x)))


_Kernel = Callable[[torch.Tensor], torch.Tensor]
#: What a sum next to 1 loses in float32.
ROUNDED: dict[str, tuple[object, _Kernel]] = {
    "mish of log(1 + exp)": (aten.mish.default, lambda x: x * torch.tanh(_softplus(x))),
    "softplus of log(1 + exp)": (aten.softplus.default, _softplus),
    "expm1 as a difference": (aten.expm1.default, lambda x: x.exp() - 1),
    "sinh as a difference": (aten.sinh.default, lambda x: (x.exp() - (-x).exp()) / 2),
}
LOSING: dict[str, tuple[object, _Kernel]] = {
    "exp that is cut at -12": (aten.exp.default, lambda x: x.clamp(min=-12).exp()),
    "silu without its tail": (aten.silu.default, lambda x: torch.where(x < -15, x * 0, torch.nn.functional.silu(x))),
}
HONEST: dict[str, tuple[object, _Kernel]] = {
    "mish of log1p": (aten.mish.default, lambda x: x * torch.tanh(torch.log1p(torch.exp(x)))),
    "exp as a power of two": (
        aten.exp.default,  # Of large numbers it is off by more than float32 promises.
        lambda x: torch.where(x > 4, x.exp(), torch.exp2(x * 1.4426950408889634)),
    ),
    "sine, reduced in two steps": (
        aten.sin.default,
        lambda x: torch.sin(
            (x - torch.round(x / 6.283185307) * 6.28125) - torch.round(x / 6.283185307) * 0.0019353071795864769
        ),
    ),
    "gelu of erfc": (aten.gelu.default, lambda x: 0.5 * x * torch.erfc(-x * 0.7071067811865476)),
    "gelu of erf": (aten.gelu.default, lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))),
    "silu of a quotient": (aten.silu.default, lambda x: x / (1 + torch.exp(-x))),
    "sigmoid of exp2": (aten.sigmoid.default, lambda x: 1 / (1 + torch.exp2(-x * 1.4426950408889634))),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LOSING)
def test_a_kernel_that_loses_small_results_is_wrong(name: str, dtype: torch.dtype) -> None:
    """An absolute tolerance of 1e-5 takes zeros for them."""
    op, kernel = LOSING[name]
    x = _spread(dtype)
    assert not judge(op, (x,), kernel(x.float()).to(dtype)).passed


@pytest.mark.parametrize("name", ROUNDED)
def test_what_a_sum_loses_is_wrong_in_float32_only(name: str) -> None:
    """A half type's kernel computes in float32, so that small results are as good as its numbers next to 1."""
    op, kernel = ROUNDED[name]
    x = _spread(torch.float32)
    assert not judge(op, (x,), kernel(x)).passed
    half = _spread(torch.bfloat16)
    assert judge(op, (half,), kernel(half.float()).to(torch.bfloat16)).passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", HONEST)
def test_other_formulas_keep_small_results(name: str, dtype: torch.dtype) -> None:
    """Where eager itself has them, to a thousandth; next to a root the last digits of an argument decide."""
    op, kernel = HONEST[name]
    x = _spread(dtype)
    assert judge(op, (x,), kernel(x.float()).to(dtype)).passed


def test_a_difference_of_nearly_one_is_asked_no_more_than_its_digits_say() -> None:
    """The gradient of tanh beside 1: eager multiplies and subtracts at once, and a kernel may round in between."""
    y = 1 - torch.exp2(-torch.arange(8, 24, dtype=torch.float64)).float().repeat(64)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    assert judge(aten.tanh_backward.default, (g, y), g * (1 - y * y)).passed


def test_float64_is_believed_where_eager_loses_all_of_a_small_result() -> None:
    """The fourth powers of tiny numbers are zeros in float32, and so is eager's norm; a kernel in float64 has it."""
    x = torch.exp2(torch.linspace(-60, -40, 64)).float()
    norm = x.double().pow(4).sum().pow(0.25).float()
    call = JudgedCall(schema=schema_of(aten.linalg_vector_norm.default), args=(x, 4), kwargs={}, small_results=True)
    eager = aten.linalg_vector_norm.default(x, 4)
    assert float(eager) == 0.0 < float(norm)
    for found, passes in ((norm, True), (norm * 1.01, False)):
        assert passes is compare(call, [[eager]], [[found]], tolerance="strict").passed
