from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, assert_as_eager, eager, kernel, layouts, values

from opsmith.kernels.common.launch import launch
from opsmith.kernels.matmul import matmul

MM = "mm.default"


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.int8, torch.uint8])
def test_products_agree_with_eager_in_every_layout(dtype: torch.dtype) -> None:
    """Integers wrap in their own type; half types are accumulated in float32."""
    right = layouts(9, 5, dtype=dtype)
    for name, left in layouts(7, 9, dtype=dtype).items():
        assert_as_eager(MM, left, right[name])


@pytest.mark.parametrize("sizes", [(1, 1, 1), (65, 130, 67), (64, 64, 64), (3, 0, 4), (0, 3, 4), (3, 4, 0)])
def test_sizes_around_the_tile(sizes: tuple[int, int, int]) -> None:
    """One element, tiles that are full, cut and empty; a sum over nothing is zero."""
    rows, inner, columns = sizes
    assert_as_eager(MM, values(rows, inner, scale=0.1), values(inner, columns, scale=0.1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex64])
def test_a_sum_over_nothing_is_written_not_multiplied(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros are all there is to write."""

    def multiplied(*_: object, **__: object) -> None:
        raise AssertionError("a product was launched")

    monkeypatch.setattr(matmul, "launch", multiplied)
    assert torch.equal(torch.zeros(3, 4, dtype=dtype), kernel(MM)(values(3, 0, dtype=dtype), values(0, 4, dtype=dtype)))


def test_a_sum_over_nothing_has_a_step_of_which_masks_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel tells the compiler; no step is read without a mask then."""
    taken = []

    def launched(function: Any, grid: Any, device: Any, *args: Any, **meta: Any) -> None:
        taken.append((args[-1].value, meta["EVEN_K"]))
        launch(function, grid, device, *args, **meta)

    monkeypatch.setattr(matmul, "launch", launched)
    assert_as_eager("addmm.default", values(4), values(3, 0), values(0, 4))
    assert_as_eager("addmm.default", values(4), values(3, 64, scale=0.1), values(64, 4, scale=0.1))
    assert [(1, False), (1, True)] == taken


@pytest.mark.parametrize("inner", [2, 6, 12, 20, 24, 70])
@pytest.mark.parametrize("rows", [1, 2, 12, 70])
def test_factors_of_which_a_few_neighbours_are_read_at_a_time(rows: int, inner: int) -> None:
    """Along the terms, along the result, and where a dimension of one has a stride that nothing divides."""
    for left, right in ((rows, inner), (inner, rows)):
        a, b = values(left, 14, scale=0.1), values(14, right, scale=0.1)
        for one, other in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t())):
            assert_as_eager(MM, one, other)
    alone = values(3, 14, 5)[:1, :, :1].squeeze(2)
    assert_as_eager(MM, alone, values(14, inner, scale=0.1))


def test_how_many_neighbours_can_be_read_at_a_time() -> None:
    """As many as divide the strides along which none lie, and the size along which they do where it is the result's."""
    of = matmul.vector_width
    assert [1, 2, 4, 8, 1] == [of(torch.empty(2, 3, columns)) for columns in (5, 6, 12, 24, 32)]
    assert [1, 2, 4, 8, 1] == [of(torch.empty(2, 3, rows).mT) for rows in (5, 6, 12, 24, 32)]
    assert 4 == of(torch.empty(100).as_strided((5, 2, 12), (12, 24, 1)))
    assert 8 == of(torch.empty(1, 3, 24))
    assert 8 == of(torch.empty(100).as_strided((1, 3, 8), (5, 24, 1)))
    assert 1 == of(torch.empty(4, 4, 4)[:, ::2, ::2])


@pytest.mark.parametrize("inner", [128, 300, 448])
def test_very_long_sums_are_added_up_in_parts(inner: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole parts, a part that is cut, and a last part alone: each term counts once."""
    monkeypatch.setattr(matmul, "MOST_TERMS", 100)
    monkeypatch.setattr(matmul, "PART_TERMS", 128)
    taken: set[int] = set()

    def launched(*args: Any, **meta: Any) -> None:
        taken.add(meta["PART_STEPS"])
        launch(*args, **meta)

    monkeypatch.setattr(matmul, "launch", launched)
    for dtype in (torch.float16, torch.bfloat16):
        assert_as_eager(MM, values(70, inner, scale=0.1, dtype=dtype), values(inner, 9, scale=0.1, dtype=dtype))
    assert {128 // 64} == taken


@pytest.mark.parametrize(("inner", "parts"), [(256, [256]), (257, [256, 1]), (300, [256, 44]), (640, [256, 256, 128])])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_long_sums_of_large_tiles_take_a_launch_for_each_part(
    dtype: torch.dtype, inner: int, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The term is added once, and nothing is rounded to a half type but the result."""
    monkeypatch.setattr(matmul, "MOST_TERMS", 256)
    taken = []

    def launched(function: Any, grid: Any, device: Any, *args: Any, **meta: Any) -> None:
        taken.append(args[1].shape[2])
        assert not meta["PART_STEPS"]
        launch(function, grid, device, *args, **meta)

    monkeypatch.setattr(matmul, "launch", launched)
    a, b = values(2, 40, inner, scale=1, dtype=dtype), values(2, 33, inner, scale=1, dtype=dtype).mT
    term = values(40, 1, dtype=dtype)
    with matmul.PRODUCTS.force((128, 256, 64, 8, 3, 1)):
        found = [kernel("bmm.default")(a, b), kernel("baddbmm.default")(term, a, b, beta=-2, alpha=0.5)]
        found.append(kernel("addmm.default")(term, a[1], b[1], beta=0.5, alpha=3))
    exact = [a.double() @ b.double(), -2 * term.double() + 0.5 * (a.double() @ b.double())]
    exact.append(0.5 * term.double() + 3 * (a[1].double() @ b[1].double()))
    assert parts * 3 == taken
    for ours, expected in zip(found, exact, strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.double(), expected, rtol=torch.finfo(dtype).eps * 0.51, atol=1e-4)


def test_which_sums_take_several_launches() -> None:
    """Long ones of half types, by tiles of which a thread cannot hold two, whose terms are not shared already."""
    large, small = matmul.ProductPlan(128, 256, 64, 8, 3, 1), matmul.ProductPlan(64, 64, 64, 4, 4, 1)
    takes = matmul.takes_several_launches
    assert takes(large, torch.float16, "ieee", 8193)
    assert not takes(large, torch.float16, "ieee", 8192)
    assert not takes(small, torch.float16, "ieee", 8193)
    assert not takes(large._replace(splits=2), torch.float16, "ieee", 65536)
    assert not takes(large, torch.float32, "tf32x3", 65536)
    assert not takes(large, torch.int64, None, 65536)


@pytest.mark.parametrize(("splits", "at_a_time"), [(1, 1), (8, 1), (9, 32), (32, 32), (70, 32)])
def test_many_partial_sums_are_read_many_at_a_time(
    splits: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each counts once, also in types whose sums wrap."""
    taken = []

    def launched(*args: Any, **meta: Any) -> None:
        taken.append(meta.get("AT_A_TIME"))
        launch(*args, **meta)

    monkeypatch.setattr(matmul, "launch", launched)
    for dtype, scale in ((torch.float32, 0.1), (torch.int64, 9.0), (torch.int8, 9.0)):
        a, b = values(splits, 5, 3, dtype=dtype, scale=scale), values(splits, 3, 7, dtype=dtype, scale=scale)
        assert_as_eager("addbmm.default", values(5, 1, dtype=dtype), a, b, beta=2, alpha=3)
    assert [None, at_a_time] * 3 == taken


def test_partial_sums_are_added_up_into_any_layout() -> None:
    """What they are added to is read by its own strides."""
    partial, term = values(9, 2, 3, 5), values(5)
    out = torch.empty(3, 5, 2).permute(2, 0, 1)
    matmul.combine(out, partial, matmul.Term(term, 2, 1))
    torch.testing.assert_close(out, partial.sum(0) + 2 * term)


@pytest.mark.parametrize(("columns", "vector"), [(7, 1), (70, 2), (24, 8), (32, 1)])
def test_how_many_neighbours_are_written_at_a_time(columns: int, vector: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as divide the lines of the result; whether 16 does, Triton sees for itself."""

    def launched(*args: Any, **meta: Any) -> None:
        assert meta["LAYOUT"].C_VEC.value == vector
        launch(*args, **meta)

    monkeypatch.setattr(matmul, "launch", launched)
    assert_as_eager("bmm.default", values(3, 70, 6, scale=0.1), values(3, 6, columns, scale=0.1))


def test_which_sums_are_added_up_in_parts() -> None:
    """Those of which tensor cores would add more than 8,192 terms to one accumulator."""
    steps = matmul.steps_of_a_part
    assert [0, 32] == [steps(torch.float16, "ieee", 64, 128), steps(torch.float16, "ieee", 64, 129)]
    assert [64, 64, 0] == [steps(torch.float32, precision, 32, 1000) for precision in ("tf32x3", "tf32", "ieee")]
    assert 0 == steps(torch.int64, None, 16, 10000)


def test_which_sums_are_shared_by_several_programs() -> None:
    """By as many as leave 8,192 terms for each, where there is room for what they add up."""
    fewest = matmul.fewest_splits
    assert [1, 2, 3] == [fewest(terms, 1000, torch.float16, "ieee") for terms in (8192, 8193, 20000)]
    assert [2, 1, 1] == [fewest(9000, 0, torch.float32, precision) for precision in ("tf32x3", "ieee", None)]
    assert [3, 1] == [fewest(1 << 20, numel, torch.bfloat16, "ieee") for numel in (80 << 20, 300 << 20)]


def test_a_thread_has_room_for_two_accumulators() -> None:
    """With 255 registers: 64 numbers of each for half types, 32 where factors are split in registers."""
    for itemsize, most in ((2, 64), (4, 32)):
        for m, n, warps in ((128, 256, 8), (256, 128, 8), (128, 128, 4), (128, 64, 4), (64, 64, 4), (16, 64, 4)):
            plan = matmul.with_two_accumulators(matmul.ProductPlan(m, n, 64, warps, 3, 1), itemsize)
            assert plan.m * plan.n <= most * 32 * plan.warps
    small = matmul.ProductPlan(64, 64, 64, 4, 4, 2)
    assert small == matmul.with_two_accumulators(small, 4)


def test_float32_products_keep_float32_digits() -> None:
    """Near-equal terms of both signs: tf32's ten bits would leave errors of 1e-3."""
    a = 1 + torch.arange(64 * 64).view(64, 64).remainder(97) * 2**-20
    b = torch.ones(64, 8)
    b[::2] = -1
    torch.testing.assert_close((a.double() @ b.double()).float(), kernel(MM)(a, b), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.ones(2, 3), torch.ones(4, 5)),
        (torch.ones(3), torch.ones(3, 3)),
        (torch.ones(2, 3), torch.ones(3, 2, dtype=torch.float64)),
    ],
)
def test_operands_that_do_not_fit_are_refused(left: torch.Tensor, right: torch.Tensor) -> None:
    """Sizes, dimensions, types: as in eager."""
    for mm in (eager(MM), kernel(MM)):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            mm(left, right)
