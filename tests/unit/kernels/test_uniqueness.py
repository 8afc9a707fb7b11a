from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, kernel, values

NAN = float("nan")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Triton's interpreter computes with numpy, which warns of infinities."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.bool])
def test_unique_elements(dtype: torch.dtype) -> None:
    """In order, each with its places and its count."""
    x = values(7, 50, dtype=torch.float32, scale=2).round().to(dtype)
    assert_as_eager("_unique2.default", x, True, True, True)
    assert_as_eager("_unique2.default", x.t(), False, False, True)
    assert_as_eager("_unique.default", x, True, True)
    assert_as_eager("unique_consecutive.default", x, True, True)


def test_nan_is_unique_and_zeros_are_equal() -> None:
    """As in eager."""
    x = torch.tensor([NAN, 0.0, NAN, -0.0, 1.0, NAN])
    assert_as_eager("_unique2.default", x, True, True, True)
    assert_as_eager("unique_consecutive.default", x, True, True)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_unique_slices(dim: int) -> None:
    """In lexicographic order, or as they come."""
    x = (values(3, 4, 2, scale=1) > 0).float()
    x[:, 2] = x[:, 1]
    assert_as_eager("unique_dim.default", x.transpose(0, 2), dim, True, True, True)
    assert_as_eager("unique_consecutive.default", x, True, True, dim)


def test_nothing_one_and_everything_alike() -> None:
    """Edge cases have shapes of their own."""
    for x in (values(0), values(2, 0), torch.tensor(3.0), torch.ones(5000)):
        assert_as_eager("_unique2.default", x, True, True, True)
        assert_as_eager("unique_consecutive.default", x, True, False)
    assert_as_eager("unique_dim.default", values(0, 3), 0, True, True, True)
    assert_as_eager("unique_consecutive.default", torch.ones(3), False, False, 0)
    with pytest.raises(ValueError, match="slices"):
        kernel("unique_dim.default")(values(3, 0), 0)
    with pytest.raises(NotImplementedError, match="128"):
        kernel("unique_dim.default")(values(2, 129), 0)


@pytest.mark.parametrize("invert", [False, True])
def test_membership(*, invert: bool) -> None:
    """In the promoted type; NaN is in nothing, and nothing holds nothing."""
    x = torch.tensor([[1.0, 2.5, NAN], [-0.0, 3.0, 9.0]])
    for tests in (torch.tensor([3.0, NAN, 0.0, 2.5]), torch.tensor([9, 1]), torch.arange(40).view(5, 8).t(), values(0)):
        assert_as_eager("isin.Tensor_Tensor", x.t(), tests, invert=invert)
    assert_as_eager("isin.Tensor_Tensor", torch.arange(3), torch.tensor([1.0, 1.5]), invert=invert)
    assert_as_eager("isin.Tensor_Scalar", x.t(), 2.5, invert=invert)
    assert_as_eager("isin.Scalar_Tensor", 3, x, invert=invert)


def test_masked_indices_may_be_out_of_range() -> None:
    """Where the mask does not hold, nothing is read and nothing added."""
    x, mask = values(4, 5), torch.tensor([True, False, True])
    indices = [torch.tensor([3, 100, -1]), torch.tensor([0, -77, 4])]
    picked = torch.stack([x[3, 0], torch.tensor(7.0), x[-1, 4]])
    torch.testing.assert_close(kernel("_unsafe_masked_index.default")(x, mask, indices, 7), picked, rtol=0, atol=0)
    added = kernel("_unsafe_masked_index_put_accumulate.default")(x, mask, indices, values(3))
    expected = x.index_put([torch.tensor([3, 3]), torch.tensor([0, 4])], values(3)[[0, 2]], accumulate=True)
    torch.testing.assert_close(added, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_complex_tensors_and_conjugates(dtype: torch.dtype) -> None:
    """Parts broadcast; conjugates keep the layout, and real numbers are their own."""
    assert_as_eager("complex.default", values(3, 4, dtype=dtype).t(), values(3, dtype=dtype))
    if dtype != torch.float16:
        z = torch.complex(values(3, 4, dtype=dtype), values(4, 3, dtype=dtype).t())
        assert_as_eager("_conj_physical.default", z.t())
        assert_as_eager("conj_physical.default", z.conj())
    with pytest.raises(TypeError, match="bfloat16"):
        kernel("complex.default")(values(2, dtype=torch.bfloat16), values(2, dtype=torch.bfloat16))


def test_zero_and_polygamma_in_place() -> None:
    """They write where the argument lies."""
    x = values(3, 4).abs() + 1
    expected = torch.special.polygamma(2, x)
    view = x.t()
    assert kernel("polygamma_.default")(view, 2) is view
    torch.testing.assert_close(x, expected)
    kernel("zero_.default")(view[1:3])
    torch.testing.assert_close(x[:, 1:3], torch.zeros(3, 2))
    with pytest.raises(TypeError, match="int64"):
        kernel("polygamma_.default")(torch.ones(2, dtype=torch.int64), 1)
