"""Products and quotients of complex numbers, as eager has them on a CPU and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton.language as tl
from tests.unit.kernels.against_eager import assert_as_eager, kernel

from opsmith.aten.derivation import DerivedKernel
from opsmith.kernels.pointwise import complex_arithmetic

INFINITE, NAN, TINY = float("inf"), float("nan"), 3e-310


@pytest.mark.parametrize("op", ["addcmul.default", "addcdiv.default"])
@pytest.mark.parametrize("value", [1, -3.14, 0.0, True])
def test_parts_of_real_and_complex_tensors(op: str, value: float) -> None:
    """They promote, broadcast and may lie anyhow."""
    x, y = torch.randn(4, 5, dtype=torch.bfloat16), torch.randn(5, 4, dtype=torch.float64).t()
    for dtype in (torch.complex64, torch.complex128):
        assert_as_eager(op, x, y.float(), torch.randn(1, 5, dtype=dtype), value=value)
    z = torch.randn(4, 10, dtype=torch.complex64)[:, ::2]
    assert_as_eager(op, z, torch.randn(5, 4, dtype=torch.complex64).t(), z, value=value * 1j)
    assert_as_eager(op, z, torch.ones(4, 5, dtype=torch.int64), torch.zeros(4, 5, dtype=torch.complex64), value=value)


@pytest.mark.parametrize(
    ("op", "y", "z", "expected"),
    [
        ("addcmul", complex(INFINITE, NAN), 1 + 1j, complex(INFINITE, INFINITE)),
        ("addcmul", 1e300 + 1e300j, 1e300 + 1e300j, complex(NAN, INFINITE)),
        ("addcmul", complex(NAN, NAN), 1 + 1j, complex(NAN, NAN)),
        ("addcdiv", 1 + 1j, 0j, complex(INFINITE, INFINITE)),
        ("addcdiv", complex(INFINITE, NAN), 1 + 1j, complex(INFINITE, -INFINITE)),
        ("addcdiv", 1 + 1j, complex(INFINITE, NAN), 0j),
        ("addcdiv", 6 * TINY + 3j * TINY, complex(3 * TINY, 0), 2 + 1j),
        ("addcdiv", 1e307 + 1e307j, 1e307 + 1e307j, 1 + 0j),
    ],
)
def test_a_gpu_keeps_infinities_and_scales_divisors(
    monkeypatch: pytest.MonkeyPatch, op: str, y: complex, z: complex, expected: complex
) -> None:
    """As C's Annex G has it; what it leaves open, such as NaN beside an infinity, is LLVM's."""
    monkeypatch.setattr(complex_arithmetic, "IS_INTERPRETED", tl.constexpr(value=False))
    operands = [torch.tensor([one], dtype=torch.complex128) for one in (0j, y, z)]
    with np.errstate(all="ignore"):
        got = kernel(f"{op}.default")(*operands).item()
    torch.testing.assert_close(got.real, expected.real, equal_nan=True)
    torch.testing.assert_close(got.imag, expected.imag, equal_nan=True)


def test_products_of_real_and_complex_operands() -> None:
    """They promote, broadcast and may lie anyhow; a number keeps the type of a complex tensor."""
    z, real = torch.randn(4, 10, dtype=torch.complex64)[:, ::2], torch.randn(5, 4, dtype=torch.float64).t()
    for other in (torch.randn(1, 5, dtype=torch.complex128), z, real, torch.ones(5, dtype=torch.int64), real[0, 0]):
        assert_as_eager("mul.Tensor", z, other)
        assert_as_eager("mul.Tensor", other, z)
    for number in (2, -0.5, True, 1 - 3j):
        assert_as_eager("mul.Tensor", z, torch.tensor(number))
        assert_as_eager("mul.Scalar", z, number)
        assert_as_eager("mul.Scalar", z.to(torch.complex128), number)
    assert_as_eager("mul.Scalar", real, 2)
    assert_as_eager("mul.Scalar", real, 2j)


@pytest.mark.parametrize("op", ["add", "sub", "rsub", "div"])
def test_sums_differences_and_quotients_of_real_and_complex_operands(op: str) -> None:
    """As products do; a number of another kind than both tensors makes a complex result, in the tensors' precision."""
    z, real = torch.randn(4, 10, dtype=torch.complex64)[:, ::2], torch.randn(5, 4, dtype=torch.float64).t()
    wide = torch.randn(1, 5, dtype=torch.complex128)
    for other in (wide, z, real, torch.ones(5, dtype=torch.int64), wide[0, 0]):
        assert_as_eager(f"{op}.Tensor", z, other)
    assert_as_eager(f"{op}.Tensor", real.float(), wide[0, 0])
    assert_as_eager(f"{op}.Tensor", real.bfloat16(), wide[0, 0])
    assert_as_eager(f"{op}.Tensor", z[:0], real[:0])
    for number in (2, -0.5, 1 - 3j):
        assert_as_eager(f"{op}.Scalar", z, number)
        assert_as_eager(f"{op}.Scalar", real, number)


@pytest.mark.parametrize("op", ["add.Tensor", "sub.Tensor", "rsub.Tensor"])
@pytest.mark.parametrize("alpha", [2, -0.5, 1 - 3j])
def test_the_second_term_of_a_complex_sum_has_a_factor(op: str, alpha: complex) -> None:
    """Of any kind."""
    assert_as_eager(op, torch.randn(7), torch.randn(7, dtype=torch.complex64), alpha=alpha)


def test_half_types_beside_complex_numbers_are_declined() -> None:
    """Their results are complex numbers of two half floats."""
    with pytest.raises(NotImplementedError, match="torch.complex32"):
        kernel("mul.Scalar")(torch.ones(3, dtype=torch.float16), 2j)


@pytest.mark.parametrize("op", ["abs", "sgn", "angle", "neg", "reciprocal"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_functions_of_one_complex_tensor(op: str, dtype: torch.dtype) -> None:
    """Lengths and angles have the type of the parts; the layout is the operand's."""
    z = torch.randn(6, 5, 4, dtype=dtype)
    for x in (z, z.permute(2, 0, 1), z[:, ::2, 1:], z[0, 0, 0], z[:0]):
        assert_as_eager(f"{op}.default", x)
    assert_as_eager(f"{op}.default", torch.tensor([1, -1, 1j, -1j, -3 + 4j, complex(INFINITE, 1)], dtype=dtype))


def test_the_sign_of_zero_is_zero() -> None:
    """It has no direction."""
    assert_as_eager("sgn.default", torch.zeros(3, dtype=torch.complex64))


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_squares_out_of_range_do_no_harm(size: float) -> None:
    """Lengths, signs and quotients whose squares are no float32 numbers."""
    z = size * torch.tensor([3 + 4j, -4 + 3j, 1 - 1j], dtype=torch.complex64)
    with np.errstate(all="ignore"):
        quotient = kernel("div.Tensor")(z, z.conj_physical())
        unary = {op: kernel(f"{op}.default")(z) for op in ("abs", "sgn", "reciprocal")}
    torch.testing.assert_close(quotient, (z / size) / (z / size).conj())
    for op, result in unary.items():
        expected = getattr(torch, op)(z.to(torch.complex128))
        torch.testing.assert_close(result / expected, torch.ones_like(expected), check_dtype=False)


def test_complex_tensors_with_gaps_are_multiplied_in_place() -> None:
    """What lies between their rows stays."""
    memory = torch.randn(4, 3, 7, dtype=torch.complex64)
    expected = memory.clone()
    expected[:, :2, :5].mul_(2)
    functional, in_place = torch.ops.aten.mul.Scalar, torch.ops.aten.mul_.Scalar
    DerivedKernel(kernel("mul.Scalar"), in_place, functional)(memory[:, :2, :5], 2)
    torch.testing.assert_close(memory, expected)
