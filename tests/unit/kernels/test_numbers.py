"""Python numbers among tensors of half types: where eager rounds them first, kernels do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, eager, kernel, values
from torch import Tensor

LIMITS = (0.1, 0.3, 0.7, 1.1, 1e-12)
CALLS: dict[str, Callable[[Tensor, float], tuple[object, ...]]] = {
    **{f"{name}.Scalar": lambda x, limit: (x, limit) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "hardshrink.default": lambda x, limit: (x, limit),
    "hardshrink_backward.default": lambda x, limit: (torch.ones_like(x), x, limit),
    "softshrink_backward.default": lambda x, limit: (torch.ones_like(x), x, limit),
    "fmod.Scalar": lambda x, limit: (x, limit),
    "remainder.Scalar": lambda x, limit: (x, limit),
    "searchsorted.Scalar": lambda x, limit: (x.sort()[0], limit),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("op", CALLS)
def test_a_number_is_the_nearest_one_of_the_tensors_type(op: str, dtype: torch.dtype) -> None:
    """Elements that are a limit as the type has it: only its rounding tells whether they reach it."""
    for limit in LIMITS if "mod" not in op and "remainder" not in op else LIMITS[:-1]:
        x = torch.tensor([limit, -limit, 0.0, 2 * limit, -limit / 2]).to(dtype)
        expected, actual = eager(op)(*CALLS[op](x, limit)), kernel(op)(*CALLS[op](x, limit))
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_threshold_is_rounded_on_a_device_alone(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, *, on_device: bool
) -> None:
    """An element that the threshold rounds up to is above it on a CPU, and at it on a GPU."""
    x = torch.tensor([0.84765625], dtype=dtype)
    limit = 0.84744504
    monkeypatch.setattr(Tensor, "is_cuda", on_device, raising=False)
    assert [-9.0 if on_device else 0.84765625] == kernel("threshold.default")(x, limit, -9).tolist()
    gradient = kernel("threshold_backward.default")(torch.ones_like(x), x, limit)
    assert [0.0 if on_device else 1.0] == gradient.tolist()
    assert on_device == (kernel("softshrink.default")(x, limit).item() == 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_number_of_a_half_type_passes_through_a_kernel(dtype: torch.dtype) -> None:
    """Denormal ones, infinities and NaN too: 65,536 of them."""
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    torch.testing.assert_close(kernel("relu.default")(x), torch.relu(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_number_is_divided_as_exactly_as_a_tensor(dtype: torch.dtype) -> None:
    """Its remainder is rounded once, when the sign of the divisor has been given to it."""
    assert_as_eager("remainder.Scalar_Tensor", 6.9375, values(5, 33, dtype=dtype))
    assert_as_eager("remainder.Scalar_Tensor", -7.90625, values(5, 33, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_both_signs_of_a_rounded_number_are_looked_at(dtype: torch.dtype) -> None:
    """The interpreter negates the bits of bfloat16, which are no number."""
    for op in ("hardshrink.default", "softshrink.default"):
        assert_as_eager(op, 4 * values(5, 33, dtype=dtype), 0.3)
