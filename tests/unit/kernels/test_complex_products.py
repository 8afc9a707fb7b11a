"""Products of complex matrices, computed as real ones."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, kernel

COMPLEX = (torch.complex64, torch.complex128)


def _laid_out(rows: int, columns: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """A matrix that is row-major, turned, with gaps, and of one row."""
    wide = torch.randn(rows, 2 * columns, dtype=dtype)
    turned = torch.randn(columns, rows, dtype=dtype).t()
    return [wide[:, :columns].contiguous(), turned, wide[:, ::2], wide[:1, columns:].expand(rows, columns)]


@pytest.mark.parametrize("dtype", COMPLEX)
def test_products_agree_with_eager_in_every_layout(dtype: torch.dtype) -> None:
    """A factor whose rows have gaps is copied."""
    lefts, rights = _laid_out(7, 9, dtype), _laid_out(9, 5, dtype)
    for left, right in itertools.product(lefts, rights):
        assert_as_eager("mm.default", left, right)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (33, 70, 35), (3, 0, 4), (0, 3, 4), (3, 4, 0), (4, 1, 3)])
def test_sizes_around_the_tile(sizes: tuple[int, int, int]) -> None:
    """One element, tiles that are full, cut and empty; a sum over nothing is zero."""
    rows, inner, columns = sizes
    a, b = torch.randn(2, rows, inner, dtype=torch.complex64), torch.randn(2, inner, columns, dtype=torch.complex64)
    assert_as_eager("bmm.default", a, b)
    assert_as_eager("mm.default", a[0], b[0])


@pytest.mark.parametrize(("left", "right"), [(True, False), (False, True), (True, True)])
def test_factors_that_are_conjugated_lazily(*, left: bool, right: bool) -> None:
    """As the adjoint of a matrix is, which products take as it is."""
    a, b = torch.randn(5, 4, dtype=torch.complex64), torch.randn(5, 4, dtype=torch.complex64)
    assert_as_eager("mm.default", a.mH if left else a.mT, b.conj() if right else b)
    assert_as_eager("bmm.default", a.mT[None].conj() if left else a.mT[None], b[None].conj() if right else b[None])


def test_products_are_added_to_a_complex_term() -> None:
    """Which broadcasts, or is not read; with factors of either kind."""
    a, b = torch.randn(2, 5, 4, dtype=torch.complex64), torch.randn(2, 4, 6, dtype=torch.complex64)
    for term in (torch.randn(6, dtype=torch.complex64), torch.randn(5, 1, dtype=torch.complex64).conj_physical()):
        assert_as_eager("addmm.default", term, a[0], b[0], beta=0.5, alpha=-2)
        assert_as_eager("addmm.default", term, a[0], b[0], beta=1 - 2j, alpha=3j)
        assert_as_eager("baddbmm.default", term, a, b, beta=0)
        assert_as_eager("baddbmm.default", term * torch.nan, a, b, beta=0, alpha=1j)
    with pytest.raises(TypeError, match="factors"):
        kernel("addmm.default")(term.real, a[0].real, b[0].real, alpha=2j)
    with pytest.raises(NotImplementedError, match="complex64"):
        kernel("addbmm.default")(term, a, b)


def test_the_digits_of_float32_are_kept() -> None:
    """Each part is as accurate as a product of real matrices."""
    a, b = torch.randn(40, 300, dtype=torch.complex128), torch.randn(300, 40, dtype=torch.complex128)
    got = kernel("mm.default")(a.to(torch.complex64), b.to(torch.complex64))
    error = (got - a.to(torch.complex64).to(torch.complex128) @ b.to(torch.complex64).to(torch.complex128)).abs().max()
    assert error < 2e-5
