"""Products of float32 from factors that were split into two TF32 numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from opsmith.kernels.matmul import matmul, tf32x3

#: A tile, and the factors split beforehand.
SMALL = (32, 64, 16, 4, 1, 1, 1)


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """High and low parts of a matrix, without their padding, and whether a number is not finite."""
    has_nonfinite = torch.zeros(1, dtype=torch.int32)
    both = tf32x3.parts_of(x[None, None], has_nonfinite, 16, 16).both
    return both[0, 0, : x.shape[0], : x.shape[1]], both[1, 0, : x.shape[0], : x.shape[1]], bool(has_nonfinite)


def test_two_parts_have_22_bits_and_a_sign() -> None:
    """Of every finite number that is large enough for a low part; both are TF32 numbers, which end in 13 zeros."""
    x = _numbers(40, 50) * torch.logspace(-25, 37, 50)
    high, low, has_nonfinite = _parts(x)
    assert not has_nonfinite
    assert 0 == sum(int((part.contiguous().view(torch.int32) & 0x1FFF).count_nonzero()) for part in (high, low))
    assert ((x.double() - high.double() - low.double()) / x).abs().max() <= 2.0**-23
    assert ((high - x) / x).abs().max() <= 2.0**-11


def test_the_largest_number_stays_finite() -> None:
    """Rounded up it would be infinite: it is cut, and the low part has the rest."""
    largest = torch.finfo(torch.float32).max
    high, low, has_nonfinite = _parts(torch.tensor([[largest, -largest, 0.0, -0.0, 1e-45]]))
    assert not has_nonfinite
    assert high.isfinite().all()
    assert (high.double() + low.double())[0, :2].tolist() == pytest.approx([largest, -largest], rel=2.0**-22)
    assert [0.0] * 3 == high[0, 2:].tolist()
    assert math.copysign(1, high[0, 3].item()) == -1


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_noted(number: float) -> None:
    """It is its own high part, and nothing is left of it."""
    high, low, has_nonfinite = _parts(torch.tensor([[1.0, number]]))
    assert has_nonfinite
    assert torch.equal(torch.tensor([number, 0.0]).isnan(), torch.stack([high[0, 1], low[0, 1]]).isnan())
    assert [0.0, 0.0] == low[0].tolist()


def test_padding_is_zero() -> None:
    """Up to whole tiles, in every order that a factor may lie in."""
    x = _numbers(5, 7)
    for factor in (x, x.t().contiguous().t()):
        both = tf32x3.parts_of(factor[None, None], torch.zeros(1, dtype=torch.int32), 32, 48).both
        assert (2, 1, 32, 48) == both.shape
        torch.testing.assert_close(both.sum(0)[0, :5, :7], x, rtol=0, atol=1e-6)
        assert 35 >= both[0].count_nonzero()
        assert 0 == both[:, :, 5:].count_nonzero() + both[:, :, :, 7:].count_nonzero()


@pytest.mark.parametrize("sizes", [(64, 96, 32), (33, 49, 17), (5, 3, 200), (1, 1, 1)])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_parts_are_those_of_their_factors(sizes: tuple[int, int, int], batch: int, *, turned: bool) -> None:
    """Whole tiles and cut ones, with a third operand and both scales."""
    rows, columns, terms = sizes
    a = _numbers(batch, terms, rows).mT if turned else _numbers(batch, rows, terms)
    b = _numbers(batch, columns, terms).mT if turned else _numbers(batch, terms, columns)
    added = _numbers(batch, 1, columns)
    with matmul.PRODUCTS.force(SMALL):
        found = matmul.baddbmm(added, a, b, beta=0.5, alpha=-2)
    torch.testing.assert_close(found, torch.baddbmm(added, a, b, beta=0.5, alpha=-2), rtol=1e-5, atol=1e-4)


def test_nothing_is_split_where_nothing_is_summed() -> None:
    """An alpha of 0 ignores what the factors are."""
    a = torch.full((40, 50), math.nan)
    with matmul.PRODUCTS.force(SMALL):
        assert torch.equal(torch.ones(40, 40), matmul.addmm(torch.ones(40), a, a.t(), alpha=0))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # Of numpy, which multiplies here.
def test_what_is_not_finite_stays_where_it_belongs() -> None:
    """A product is made again without parts, in which an infinity would meet zeros."""
    a, b = _numbers(70, 60), torch.ones(60, 80)
    a[3, 5], a[7, 9], b[11, 2] = math.inf, math.nan, -math.inf
    with matmul.PRODUCTS.force(SMALL):
        torch.testing.assert_close(matmul.mm(a, b), a @ b, rtol=1e-5, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("has_nonfinite", [0, 1])
def test_a_product_is_made_again_only_where_it_has_to_be(has_nonfinite: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last launch reads one number and is over."""

    def spoiled(c: torch.Tensor, *_: Any) -> torch.Tensor:
        c.fill_(7)
        return torch.tensor([has_nonfinite], dtype=torch.int32)

    monkeypatch.setattr(matmul, "_write_from_parts", spoiled)
    a, b = _numbers(70, 60), _numbers(60, 80)
    with matmul.PRODUCTS.force(SMALL):
        found = matmul.mm(a, b)
    torch.testing.assert_close(found, a @ b if has_nonfinite else torch.full((70, 80), 7.0), rtol=1e-5, atol=1e-4)


def test_which_products_may_have_their_factors_split() -> None:
    """Those in strict float32 that use each number often, with parts that are no burden."""

    def asked(precision: str, *sizes: int) -> bool:
        return any(plan.beforehand for plan in matmul.PRODUCTS.candidates(("float32", precision, "nn", "eee", *sizes)))

    assert asked("tf32x3", 1, 4096, 4096, 4096)
    assert not asked("tf32x3", 1, 64, 4096, 4096)
    assert not asked("ieee", 1, 4096, 4096, 4)
    assert not asked("tf32", 1, 512, 512, 512)
    assert [True, False] == [asked("tf32x3", 1, rows, rows, 4096) for rows in (32768, 40960)]


def test_stages_fit_into_shared_memory() -> None:
    """Each has both parts of both tiles, of 4 bytes a number; tiles are padded to."""
    for plan in matmul.BEFOREHAND:
        assert 2 * (plan.m + plan.n) * plan.k * 4 * plan.stages <= matmul.SHARED_BYTES
        assert 0 == plan.m % 64 + plan.n % 64


def test_large_products_have_their_factors_split() -> None:
    """Each number is used often; from rows that begin anywhere, splitting pays earlier."""

    def pays(*sizes: int, is_aligned: bool = True) -> bool:
        return matmul.splitting_pays(*sizes, is_aligned=is_aligned)

    assert all(pays(*sizes) for sizes in ((1, 1536, 1536, 1536), (1, 4096, 512, 4096), (16, 1024, 1024, 1024)))
    assert not any(pays(*sizes) for sizes in ((1, 1024, 1024, 1024), (64, 512, 512, 512), (1, 65536, 256, 256)))
    assert pays(1, 1001, 1007, 1003, is_aligned=False)
    assert not pays(1, 8192, 64, 8192, is_aligned=False)
    assert not pays(1, 40960, 40960, 4096)


def test_no_multiprocessor_waits_for_long() -> None:
    """Of 144 tiles twelve would come after all others, of 288 half as large ones two or three run side by side."""
    whole, halved = matmul.BEFOREHAND
    assert [halved, whole, whole] == [matmul.split_plan(1, size, size) for size in (1536, 2048, 4096)]


@pytest.mark.parametrize("turned", [False, True])
def test_rows_that_begin_anywhere_are_told(*, turned: bool) -> None:
    """By 16 bytes, along whichever dimension neighbours lie."""

    def aligned(*shape: int) -> bool:
        factor = torch.empty(shape)
        return matmul.is_aligned(factor.mT if turned else factor)

    assert [True, False, True] == [aligned(2, 5, 8), aligned(2, 5, 6), aligned(1, 1, 6)]
