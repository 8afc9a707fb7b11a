from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, values

B, I, J, O = 5, 3, 4, 6  # noqa: E741 - as in the formula of a bilinear layer


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Triton's interpreter computes with numpy, which warns of infinities."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("sums", [[2, 3], [1, 2, 3], [0, 2], [3], [0, 1, 2, 3]])
def test_any_dimensions_are_summed(sums: list[int]) -> None:
    """Those that two tensors have, and those that one alone has."""
    expanded = [1, 3], [0], [1, 2], sums
    assert_as_eager("_trilinear.default", values(B, I), values(O, I, J), values(B, J), *expanded)
    assert_as_eager("_trilinear.default", values(I, B).t(), values(O, J, I).mT, values(B, J), *expanded, 0)


def test_tensors_without_elements() -> None:
    """A sum over nothing is 0, and no batch gives no result."""
    expanded = [1, 3], [0], [1, 2], [2, 3]
    assert_as_eager("_trilinear.default", values(B, 0), values(O, 0, J), values(B, J), *expanded)
    assert_as_eager("_trilinear.default", values(0, I), values(O, I, J), values(0, J), *expanded)


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_out_forms_of_composite_ops(dtype: torch.dtype | None) -> None:
    """The result goes to out, which takes its shape."""
    x = values(3, 4)
    for op in ("softmax.int_out", "log_softmax.int_out"):
        out, expected = (torch.empty(0, dtype=dtype or x.dtype) for _ in range(2))
        assert kernel(op)(x, 1, dtype, out=out) is out
        torch.testing.assert_close(out, eager(op)(x, 1, dtype, out=expected))
    with pytest.raises(TypeError, match="int64"):
        kernel("softmax.int_out")(x, 1, out=torch.empty(3, 4, dtype=torch.int64))


@pytest.mark.parametrize("bias", [False, True])
def test_linear_into_out(*, bias: bool) -> None:
    """Of rows in any number of dimensions."""
    x, weight = values(2, 4, 3).transpose(0, 1), values(5, 3)
    out = torch.empty(4, 2, 5)
    expected = torch.nn.functional.linear(x, weight, values(5) if bias else None)
    torch.testing.assert_close(kernel("linear.out")(x, weight, values(5) if bias else None, out=out), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_conjugates_into_out(dtype: torch.dtype) -> None:
    """Of real numbers a copy, and of neither the argument itself."""
    x, out = torch.randn(3, 4, dtype=dtype).t(), torch.empty(0, dtype=torch.complex64)
    assert kernel("conj_physical.out")(x, out=out) is out
    torch.testing.assert_close(out, x.conj().to(torch.complex64), rtol=0, atol=0)
    if dtype.is_complex:
        with pytest.raises(TypeError, match="float32"):
            kernel("conj_physical.out")(x, out=torch.empty(4, 3))


def test_batch_norm_into_three_tensors() -> None:
    """The running statistics change as well."""
    x, statistics = values(4, 3, 5), (torch.zeros(3), torch.ones(3))
    mine, torchs = (tuple(part.clone() for part in statistics) for _ in range(2))
    names = ("out", "save_mean", "save_invstd")
    op = "_native_batch_norm_legit.out"
    results = [{name: torch.empty(0) for name in names} for _ in range(2)]
    actual = kernel(op)(x, None, None, *mine, True, 0.1, 1e-5, **results[0])
    expected = eager(op)(x, None, None, *torchs, True, 0.1, 1e-5, **results[1])
    torch.testing.assert_close((*actual, *mine), (*expected, *torchs))
