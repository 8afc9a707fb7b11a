from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from tests.unit.kernels.against_eager import FLOATS, HALF, SPECIAL, assert_as_eager, eager, kernel, layouts, values

UNARY: list[tuple[str, dict[str, Any]]] = [
    ("relu.default", {}),
    ("exp.default", {}),
    ("gelu.default", {"approximate": "none"}),
    ("gelu.default", {"approximate": "tanh"}),
    ("clamp.default", {"min": -0.5}),
    ("clamp.default", {"max": 1.5}),
    ("clamp.default", {"min": 2.0, "max": -1.0}),
]
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)
COMMON = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op", "options"), UNARY)
def test_unary_kernels_agree_with_eager_in_every_layout(op: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    """Values, dtype and output strides, for dense, permuted, strided, offset and expanded inputs."""
    for x in layouts(3, 5, 4, dtype=dtype).values():
        assert_as_eager(op, x, **options)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 0, 1)])
@pytest.mark.parametrize(("op", "options"), UNARY)
def test_unary_kernels_take_scalars_and_empty_tensors(op: str, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    """No dimensions, one element, no element."""
    assert_as_eager(op, values(*shape), **options)


@pytest.mark.parametrize("op", ["relu.default", "exp.default"])
def test_special_values_come_out_as_in_eager(op: str) -> None:
    """NaN stays NaN; infinities, signed zeros, denormals and the edges of the range of exp."""
    assert_as_eager(op, SPECIAL)


def test_exp_is_accurate_over_its_whole_range() -> None:
    """Within 2 ulp of the float64 result, where the plain ``2^(x log2 e)`` is off by up to 44."""
    x = torch.linspace(-87, 88, 20_001)
    expected = x.double().exp()
    error = (kernel("exp.default")(x).double() - expected).abs() / expected
    assert error.max() < 2 * 2**-23


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gelu_is_the_exact_form_where_the_approximation_differs(dtype: torch.dtype) -> None:
    """The two forms differ by up to 4e-4; each must match its own."""
    x = torch.linspace(-6, 6, 1001, dtype=dtype)
    for approximate in ("none", "tanh"):
        assert_as_eager("gelu.default", x, approximate=approximate)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", HALF)
def test_short_forms_of_gelu_round_as_float64_does(dtype: torch.dtype, approximate: str) -> None:
    """Over every value up to 14: 99.5 % of the results are float64's, rounded, and none is off by more than 1e-6."""
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    x = x[(x.abs() <= 14) & (x.abs() >= 1e-6)]
    wide = x.double().requires_grad_()
    if approximate == "none":
        expected = wide * torch.special.erfc(-wide / math.sqrt(2.0)) / 2
    else:  # Not 1 + tanh u, which cancels.
        expected = wide * torch.sigmoid(math.sqrt(8.0 / math.pi) * (wide + 0.044715 * wide**3))
    (slope,) = torch.autograd.grad(expected.sum(), wide)
    with np.errstate(over="ignore"):  # e^-2u, of which nothing is left in 1 / (1 + e^-2u).
        actual = kernel("gelu.default")(x, approximate=approximate)
        gradient = kernel("gelu_backward.default")(torch.ones_like(x), x, approximate=approximate)
    ulp = torch.finfo(dtype).eps
    for ours, exact in ((actual, expected.detach()), (gradient, slope)):
        assert (ours == exact.to(dtype)).double().mean() > 0.995
        torch.testing.assert_close(ours.double(), exact, rtol=ulp, atol=1e-6)


def test_gelu_of_special_values_is_eagers() -> None:
    """Signed zeros, infinities, NaN and what a Gaussian underflows at.

    One by one: of several, eager has NaN at infinity on a processor with AVX-512, where it computes in vectors.
    """
    for x in SPECIAL.half().split(1):
        for approximate in ("none", "tanh"):
            assert_as_eager("gelu.default", x, approximate=approximate)
            assert_as_eager("gelu_backward.default", torch.ones_like(x), x, approximate=approximate)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_stay_integers(dtype: torch.dtype) -> None:
    """And wrap as eager's do; exp alone gives the default float type."""
    x, y = values(6, 7, dtype=dtype, scale=60), values(7, dtype=dtype, scale=60)
    assert_as_eager("relu.default", x)
    assert_as_eager("clamp.default", x, 1, 5)
    assert_as_eager("exp.default", x)
    assert_as_eager("add.Tensor", x, y, alpha=3)
    assert_as_eager("mul.Tensor", x, y)


@pytest.mark.parametrize("left", COMMON)
@pytest.mark.parametrize("right", COMMON)
def test_types_promote_as_in_eager(left: torch.dtype, right: torch.dtype) -> None:
    """Tensors with dimensions, 0-dim tensors and numbers rank differently."""
    x, y, condition = values(4, 3, dtype=left), values(3, dtype=right), values(4, 3, dtype=torch.bool)
    for other in (y, y[0]):
        assert_as_eager("add.Tensor", x, other)
        assert_as_eager("mul.Tensor", other, x)
        assert_as_eager("where.self", condition, x, other)
    if torch.bool not in (left, right):
        assert_as_eager("clamp.Tensor", x, y[0], y)


@pytest.mark.parametrize("dtype", COMMON)
@pytest.mark.parametrize("number", [True, 3, -2.5])
def test_python_numbers_are_operands(dtype: torch.dtype, number: float) -> None:
    """On either side; a float lifts integers to the default float type."""
    x = values(5, 3, dtype=dtype)
    assert_as_eager("add.Tensor", x, number)
    assert_as_eager("mul.Tensor", x, number)
    assert_as_eager("mul.Tensor", number, x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("alpha", [0, 1, -2, 0.3])
def test_add_scales_its_second_operand_and_rounds_once(dtype: torch.dtype, alpha: float) -> None:
    """Half types too, where eager itself rounds ``alpha * other`` first; float64 gets all of alpha's digits."""
    x, y = values(40, 5, dtype=dtype), values(5, dtype=dtype)
    expected = (x.double() + alpha * y.double()).to(dtype)
    within_one_rounding = 1.01 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        kernel("add.Tensor")(x, y, alpha=alpha), expected, rtol=0 if dtype in HALF else within_one_rounding, atol=1e-6
    )


def test_results_are_rounded_to_the_nearest_half_value() -> None:
    """Every one of them, under the interpreter too."""
    for dtype in HALF:
        x = values(1000, dtype=dtype)
        expected = (x.double() * 1.37).to(dtype)
        torch.testing.assert_close(kernel("mul.Tensor")(x, 1.37), expected, rtol=0, atol=0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    shapes=mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=4, min_side=0),
    transposed=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_any_shapes_that_broadcast_give_what_eager_gives(shapes: Any, transposed: tuple[bool, ...]) -> None:
    """Values and output strides for operands in mixed layouts."""
    x, y, z = (
        values(*shape[::-1]).permute(tuple(reversed(range(len(shape))))) if flip else values(*shape)
        for shape, flip in zip(shapes.input_shapes, transposed, strict=True)
    )
    assert_as_eager("add.Tensor", x, y, alpha=0.5)
    assert_as_eager("where.self", x > 0, y, z)
    assert_as_eager("clamp.Tensor", x, y, z)


def test_channels_last_survives() -> None:
    """As in eager, also where one operand is broadcast or has a dimension of size 1."""
    x = values(2, 3, 4, 5).to(memory_format=torch.channels_last)
    thin = values(2, 1, 4, 5).to(memory_format=torch.channels_last)
    assert_as_eager("relu.default", x)
    assert_as_eager("mul.Tensor", x, values(3, 1, 1))
    assert_as_eager("add.Tensor", x, values(2, 3, 4, 5))
    assert_as_eager("add.Tensor", thin, values(2, 1, 4, 5))
    assert_as_eager("mul.Tensor", thin, x)


def test_nan_passes_through_clamp_from_every_side() -> None:
    """A NaN value and a NaN limit both give NaN."""
    x, nan = torch.tensor([1.0, float("nan"), 3.0]), float("nan")
    assert_as_eager("clamp.default", x, 0.0, 2.0)
    assert_as_eager("clamp.default", x, nan, 2.0)
    assert_as_eager("clamp.Tensor", x, torch.tensor([nan, 0.0, 0.0]), torch.tensor([2.0, 2.0, nan]))


def test_bools_have_one_limit() -> None:
    """It is "and" or "or"; two limits are refused, as in eager."""
    x, limit = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    assert_as_eager("clamp_min.Tensor", x, limit)
    assert_as_eager("clamp.Tensor", x, None, limit)
    with pytest.raises(TypeError, match="clamp is not defined"):
        kernel("clamp.Tensor")(x, limit, limit)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn, torch.uint16])
def test_where_moves_types_that_it_cannot_compute_with(dtype: torch.dtype) -> None:
    """It moves bits, so that any type of 1 to 8 bytes is served."""
    x, y, condition = values(4, 3), values(4, 3) * 2, values(4, 3, dtype=torch.bool)
    x, y = (part.abs().to(dtype) for part in (x, y))
    expected = eager("where.self")(condition, x, y)
    actual = kernel("where.self")(condition, x, y)
    assert expected.dtype == actual.dtype
    assert expected.view(torch.uint8).tolist() == actual.view(torch.uint8).tolist()


def test_what_is_not_served_is_declined() -> None:
    """With the one exception that a worker reads as "unsupported"."""
    x = torch.ones(3)
    z = x.to(torch.complex64)
    for unserved in (x.to(torch.float8_e5m2), x.to_sparse(), z.conj(), z.to_sparse()):
        with pytest.raises(NotImplementedError, match="not served"):
            kernel("add.Tensor")(unserved, unserved)
    with pytest.raises(NotImplementedError, match="not served"):
        kernel("exp.default")(z)


@pytest.mark.parametrize(
    ("op", "args", "options"),
    [
        ("relu.default", (torch.tensor([True]),), {}),
        ("gelu.default", (torch.ones(2),), {"approximate": "erf"}),
        ("add.Tensor", (torch.ones(2), torch.ones(3)), {}),
        ("add.Tensor", (torch.arange(2), torch.arange(2)), {"alpha": 2.5}),
        ("add.Tensor", (torch.ones(2), torch.ones(2)), {"alpha": True}),
        ("clamp.default", (torch.ones(2),), {}),
        ("clamp.default", (torch.arange(2, dtype=torch.int8), 200), {}),
        ("where.self", (torch.ones(2), torch.ones(2), torch.ones(2)), {}),
    ],
)
def test_a_call_that_eager_refuses_is_refused(op: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """And not declined: it is a mistake, not a gap."""
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        eager(op)(*args, **options)
    with pytest.raises((RuntimeError, ValueError, TypeError, OverflowError)) as refused:
        kernel(op)(*args, **options)
    assert not isinstance(refused.value, NotImplementedError)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("dtype", HALF)
def test_whole_quotients_of_half_types_are_those_of_rounded_quotients(mode: str, dtype: torch.dtype) -> None:
    """A quotient that a half type rounds up to a whole number counts as it, as in eager; by a number it does not."""
    x, y = values(200, 100, dtype=dtype) * 8, values(100, 200, dtype=dtype).t()
    assert_as_eager("div.Tensor_mode", x, y, rounding_mode=mode)
    assert_as_eager("div.Tensor_mode", x, torch.tensor(0.3, dtype=dtype), rounding_mode=mode)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_negative_of_a_zero_is_the_other_zero(dtype: torch.dtype) -> None:
    """Triton's ``-x`` is ``0 - x``, which is 0.0 for both."""
    zeros = torch.tensor([0.0, -0.0, 2.0, -2.0], dtype=dtype)
    assert [True, False, True, False] == kernel("neg.default")(zeros).signbit().tolist()
    signed = kernel("copysign.Tensor")(zeros, torch.tensor([-1.0, -1.0, -0.0, 0.0], dtype=dtype))
    assert [True, True, True, False] == signed.signbit().tolist()
