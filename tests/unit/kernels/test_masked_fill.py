"""Filling in place writes what the mask names, and reads nothing where it does not write 16 bytes at a time."""

from __future__ import annotations

import pytest
import torch
from tests.unit.kernels.against_eager import FLOATS, eager, kernel, small_tiles, values

from opsmith.kernels.common import elementwise, tiles
from opsmith.kernels.pointwise import selection

SCALAR, TENSOR = "masked_fill_.Scalar", "masked_fill_.Tensor"


def mask_of(*shape: int) -> torch.Tensor:
    """Three in ten are set."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3


def assert_fills_as_eager(op: str, view: tuple[slice, ...], whole: torch.Tensor, *args: object) -> None:
    """The view of ``whole`` is filled and returned; the gaps beside it stay."""
    expected, actual = whole.clone(), whole.clone()
    eager(op)(expected[view], *args)
    given = actual[view]
    assert kernel(op)(given, *args) is given
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


BAND = (slice(None), slice(1, 5), slice(None, None, 2), slice(0, 7))
MASKS = {"whole": (2, 4, 3, 7), "rows": (2, 4, 3, 1), "columns": (7,), "broadcast between": (2, 1, 3, 7), "one": ()}


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", MASKS.values(), ids=MASKS)
def test_a_band_is_filled_where_its_mask_holds(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    """In several programs, with a number and with a tensor's one element."""
    small_tiles(monkeypatch, 32)
    tiles.tiles_of.cache_clear()
    whole = values(2, 6, 6, 9, dtype=dtype)
    assert_fills_as_eager(SCALAR, BAND, whole, mask_of(*shape), 1)
    assert_fills_as_eager(TENSOR, BAND, whole, mask_of(*shape), torch.ones((), dtype=dtype))
    tiles.tiles_of.cache_clear()


@pytest.mark.parametrize("number", [float("nan"), -float("inf"), -0.0])
@pytest.mark.parametrize("columns", [33, 32])
def test_any_number_fills_beside_any_other(number: float, columns: int) -> None:
    """Row by row, and 16 bytes at a time: what stays is NaN or infinite, too, and every bit of it stays."""
    x = values(4, columns + 16)
    x[0, :3] = torch.tensor([float("nan"), float("inf"), -0.0])
    mask = mask_of(4, columns)
    expected, actual = x.clone(), x.clone()
    expected[:, :columns].masked_fill_(mask, number)
    kernel(SCALAR)(actual[:, :columns], mask, number)
    assert torch.equal(expected.view(torch.int32), actual.view(torch.int32))


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5, 8), (8, 40)])
def test_tensors_without_gaps_are_filled(shape: tuple[int, ...]) -> None:
    """No dimensions, no element, one dimension of 16-byte accesses, and a transposed one."""
    for x in (values(*shape), values(*shape[::-1]).permute(tuple(reversed(range(len(shape)))))):
        expected = x.clone().masked_fill_(mask_of(*shape), 2.5)
        assert torch.equal(expected, kernel(SCALAR)(x, mask_of(*shape), 2.5))


@pytest.mark.parametrize(
    ("columns", "gap", "reads"), [(257, 0, True), (257, 256, False), (64, 64, True), (64, 65, False)]
)
def test_accesses_of_16_bytes_are_not_broken_by_a_mask(
    monkeypatch: pytest.MonkeyPatch, columns: int, gap: int, *, reads: bool
) -> None:
    """Where rows are written 16 bytes at a time what stays is read and written, else it is left alone."""
    operands: list[int] = []
    for module in (selection, elementwise):
        monkeypatch.setattr(module, "launch", lambda *args, **_: operands.append(len(args[4])))
    kernel(SCALAR)(values(12, columns + gap)[:, :columns], mask_of(12, columns), 1)
    assert [3 if reads else 2] == operands


def test_what_eager_refuses_or_warns_of_is_not_filled() -> None:
    """A larger mask, a number that the type does not hold; shared memory is left to eager."""
    x = torch.zeros(3, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="larger"):
        kernel(SCALAR)(x, mask_of(2, 3), 1)
    with pytest.raises(OverflowError, match="300"):
        kernel(SCALAR)(x, mask_of(3), 300)
    with pytest.raises(ValueError, match="without dimensions"):
        kernel(TENSOR)(x, mask_of(3), torch.ones(1, dtype=torch.uint8))
    with pytest.raises(TypeError, match="bool"):
        kernel(SCALAR)(x, x, 1)
    lot = mask_of(4, 4)
    for shared, mask in ((x[:1].expand(3), mask_of(3)), (lot[1:], lot[:3])):
        with pytest.raises(NotImplementedError, match="share memory"):
            kernel(SCALAR)(shared, mask, 1)
    assert not x.any()
