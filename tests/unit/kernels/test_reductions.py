from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.kernels.against_eager import (
    FLOATS,
    assert_as_eager,
    eager,
    kernel,
    layouts,
    small_tiles,
    tiles_of_a_device,
    values,
)

from opsmith.kernels.reductions import reductions

SUM = "sum.dim_IntList"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [None, [], [0], [-1], [0, 2], [1, -3], [0, 1, 2]])
@pytest.mark.parametrize("keepdim", [False, True])
def test_sums_agree_with_eager_in_every_layout(dtype: torch.dtype, dim: list[int] | None, keepdim: bool) -> None:  # noqa: FBT001
    """Over any set of dimensions; None and an empty list mean all."""
    for x in layouts(4, 5, 6, dtype=dtype).values():
        assert_as_eager(SUM, x, dim, keepdim)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_integers_and_bools_add_up_as_int64(dtype: torch.dtype) -> None:
    """Unless a type is asked for."""
    x = values(7, 9, dtype=dtype)
    assert_as_eager(SUM, x, [0])
    assert_as_eager(SUM, x, [1], dtype=torch.float32)
    assert_as_eager("sum.default", x, dtype=torch.bool)


@pytest.mark.parametrize("asked", [torch.float64, torch.bfloat16, torch.int64])
def test_the_type_asked_for_is_the_type_summed_in(asked: torch.dtype) -> None:
    """A narrower type rounds every element before the sum, as in eager."""
    for given in (torch.float32, torch.float16):
        assert_as_eager(SUM, values(8, 16, dtype=given), [1], dtype=asked)


@pytest.mark.parametrize("dim", [None, [], [0], [-1], [0, 2]])
@pytest.mark.parametrize("op", ["sum.dim_IntList", "mean.dim"])
def test_complex_numbers_are_added_part_by_part(op: str, dim: list[int] | None) -> None:
    """In every layout, over any dimensions, of which the two numbers of an element are none."""
    for dtype in (torch.complex64, torch.complex128):
        z = torch.randn(4, 5, 6, dtype=dtype)
        for x in (z, z.permute(2, 0, 1), z[:, ::2]):
            assert_as_eager(op, x, dim)
            assert_as_eager(op, x, dim, True)
    assert_as_eager(op, torch.tensor(1 + 2j), None)
    assert_as_eager(op, torch.zeros(2, 0, 2, dtype=torch.complex64), [1])


@pytest.mark.parametrize(("shape", "dim"), [((), [0]), ((), None), ((0, 4), [0]), ((0, 4), [1]), ((3, 0), None)])
def test_empty_and_0_dim_sums(shape: tuple[int, ...], dim: list[int] | None) -> None:
    """A sum over nothing is zero."""
    assert_as_eager(SUM, values(*shape), dim)


def test_a_long_half_sum_is_accumulated_in_float32() -> None:
    """4096 times 1 is 4096, where a float16 accumulator stops at 2048 and a bfloat16 one at 256."""
    for dtype in (torch.float16, torch.bfloat16):
        assert kernel(SUM)(torch.ones(3, 4096, dtype=dtype), [1]).tolist() == [4096.0] * 3


@pytest.mark.parametrize(("shape", "dim"), [((5, 3000), [1]), ((3000, 5), [0]), ((3000,), None)])
def test_a_split_sum_is_the_same_sum(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dim: list[int] | None
) -> None:
    """Partial sums, which only a device takes, cover every element once."""
    tiles_of_a_device(monkeypatch)
    assert_as_eager(SUM, torch.arange(15000)[: torch.Size(shape).numel()].view(shape), dim)


@pytest.mark.parametrize("numel", [97, 95, 33, 31])
@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions_of_all_of_an_odd_number_of_elements(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, numel: int
) -> None:
    """Whole tiles are read without a mask; what lies behind the last element, here NaN, has no part in the result."""
    small_tiles(monkeypatch, 16)
    behind = torch.cat([values(numel, dtype=dtype), torch.full((40,), float("nan"), dtype=dtype)])
    x = behind[:numel]
    for op in (SUM, "mean.dim", "amax.default", "linalg_vector_norm.default", "nansum.default"):
        assert_as_eager(op, x, *([None] if "dim" in op else []))
    assert_as_eager("all.default", x)
    assert_as_eager("any.default", torch.zeros_like(x))


@pytest.mark.parametrize(
    ("x", "dim", "ragged"),
    [
        (values(35), None, True),
        (values(32), None, False),
        (values(15), None, False),
        (values(70)[::2], None, False),
        (values(2, 35), [1], False),
    ],
)
def test_only_one_row_of_neighbours_is_read_without_a_mask(
    monkeypatch: pytest.MonkeyPatch, x: torch.Tensor, dim: list[int] | None, *, ragged: bool
) -> None:
    """If 16 does not divide it and a tile is whole; rows behind the first start anywhere within 16 bytes."""
    small_tiles(monkeypatch, 16)
    launches: list[dict[str, Any]] = []
    monkeypatch.setattr(reductions, "launch", lambda *_args, **constants: launches.append(constants))
    kernel(SUM)(x, dim)
    assert ragged == launches[0]["RAGGED"]


@pytest.mark.parametrize(
    ("x", "limited"),
    [
        (values(1 << 15, dtype=torch.float16), True),
        (values(1 << 15), True),
        (values(1 << 15).double(), False),
        (values((1 << 15) + 1), False),
        (values(1 << 9), False),
    ],
)
def test_splits_that_fill_a_device_have_few_registers(
    monkeypatch: pytest.MonkeyPatch, x: torch.Tensor, *, limited: bool
) -> None:
    """As many programs as a multiprocessor is given run side by side, where running results are of 4 bytes."""
    tiles_of_a_device(monkeypatch)
    launches: list[dict[str, Any]] = []
    monkeypatch.setattr(reductions, "launch", lambda *_args, **constants: launches.append(constants))
    kernel(SUM)(x, None)
    assert limited == ("maxnreg" in launches[0])


@pytest.mark.parametrize(("dim", "error"), [([3], IndexError), ([0, -2], (ValueError, RuntimeError))])
def test_dimensions_out_of_range_or_repeated_are_refused(
    dim: list[int], error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    """As in eager."""
    for sum_of in (eager(SUM), kernel(SUM)):
        with pytest.raises(error):
            sum_of(torch.ones(2, 3), dim)
