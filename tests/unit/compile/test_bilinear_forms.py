"""Bilinear forms as products of matrices."""

from __future__ import annotations

import pytest
import torch
from tests.graphs import outcome
from torch import Tensor
from torch.nn import functional

from opsmith.compile import choose_passes
from opsmith.compile.lowered import bilinear_forms

PASSES = "bilinear_form,dead_code"


def _numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("sizes", [(5, 7, 6, 4), (5, 7, 4, 6), (1, 1, 1, 1), (9, 2, 8, 8)])
def test_a_form_is_a_product_and_a_sum(sizes: tuple[int, int, int, int]) -> None:
    """Whichever side is longer, with a bias, and for inputs of more dimensions."""
    batch, outputs, left, right = sizes
    inputs = [_numbers(3, batch, left), _numbers(outputs, left, right), _numbers(3, batch, right), _numbers(outputs)]
    found = outcome(
        lambda x, w, z, bias: functional.bilinear(x, z, w, bias), inputs, choose_passes(PASSES), gradients=False
    )
    assert (1, 1) == (found.fired, sum(one.startswith("aten.mm") for one in found.targets))
    assert [] == [one.undone for one in found.reports if one.undone]
    found.assert_equal(rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("most_bytes", "products"), [(5 * 2 * 4 * 4, 4), (5 * 3 * 4 * 4, 3), (10**6, 1), (5 * 4, 0)])
def test_what_lies_between_product_and_sum_stays_small(
    most_bytes: int, products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made in strips of outputs; a form that takes very many is left to ATen."""
    monkeypatch.setattr(bilinear_forms, "MOST_BYTES", most_bytes)
    inputs = [_numbers(5, 6), _numbers(7, 6, 4), _numbers(5, 4)]
    found = outcome(lambda x, w, z: functional.bilinear(x, z, w), inputs, choose_passes(PASSES), gradients=False)
    assert products == sum(one.startswith("aten.mm") for one in found.targets)
    found.assert_equal(rtol=1e-5, atol=1e-5)


def test_gradients_are_as_before() -> None:
    """Forms of other operands, which the pass does not take."""
    inputs = [_numbers(5, 6), _numbers(7, 6, 4), _numbers(5, 4)]
    found = outcome(lambda x, w, z: functional.bilinear(x, z, w), inputs, choose_passes(PASSES), gradients=True)
    found.assert_equal(rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_left_to_aten(dtype: torch.dtype) -> None:
    """A product would be rounded before it is multiplied again."""
    inputs = [_numbers(5, 6, dtype=dtype), _numbers(7, 6, 4, dtype=dtype), _numbers(5, 4, dtype=dtype)]
    found = outcome(lambda x, w, z: functional.bilinear(x, z, w), inputs, choose_passes(PASSES), gradients=False)
    assert 0 == found.fired
