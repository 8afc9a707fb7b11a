"""Products and quotients of complex numbers, as eager has them on a CPU and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton.language as tl
from tests.unit.kernels.against_eager import assert_as_eager, kernel

from opsmith.dispatch.derivation import DerivedKernel
from opsmith.kernels import complex_arithmetic

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
    with pytest.raises(NotImplementedError, match="complex"):
        kernel("mul.Scalar")(real, 2j)


def test_complex_tensors_with_gaps_are_multiplied_in_place() -> None:
    """What lies between their rows stays."""
    memory = torch.randn(4, 3, 7, dtype=torch.complex64)
    expected = memory.clone()
    expected[:, :2, :5].mul_(2)
    functional, in_place = torch.ops.aten.mul.Scalar, torch.ops.aten.mul_.Scalar
    DerivedKernel(kernel("mul.Scalar"), in_place, functional)(memory[:, :2, :5], 2)
    torch.testing.assert_close(memory, expected)
