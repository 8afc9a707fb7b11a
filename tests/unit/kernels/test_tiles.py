"""How calls are cut into tiles: few idle lanes, and enough programs for the device."""

from __future__ import annotations

import math

import pytest
import torch
from tests.unit.kernels.against_eager import assert_as_eager, kernel, small_tiles, values

from opsmith.kernels.common import tiles, transposed_tiles
from opsmith.kernels.common.indexing import Geometry, Ints, dense_strides
from opsmith.kernels.common.transposed_tiles import Cut, tile_for
from opsmith.kernels.copies import framed_copies

#: Of an H200.
MULTIPROCESSORS = 132


def dense(*shape: int) -> Geometry:
    """Two operands without gaps, the first dimension fastest."""
    strides = dense_strides(shape, range(len(shape)))
    return Geometry(shape, (strides, strides))


@pytest.mark.parametrize(
    ("columns", "transposed", "width"),
    [(66, False, 32), (196, False, 32), (66, True, 64), (527, False, 64)],
)
def test_tiles_of_odd_columns_leave_few_lanes_idle(
    columns: int, width: int, monkeypatch: pytest.MonkeyPatch, *, transposed: bool
) -> None:
    """But a tile that is transposed has both sides long."""
    monkeypatch.setattr(transposed_tiles, "INTERPRETED", False)
    monkeypatch.setattr(transposed_tiles, "multiprocessors", lambda _device: MULTIPROCESSORS)
    assert width == tile_for((1, 1 << 16, columns), 2, torch.device("cpu"), transposed=transposed).width


@pytest.mark.parametrize("shape", [(4096, 16, 16), (2048, 64, 64), (256, 192, 192)])
def test_few_channels_and_short_rows_make_one_tile(shape: Ints, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two channels of 16 pixels would have 32 elements; a row of the result has them side by side."""
    monkeypatch.setattr(transposed_tiles, "INTERPRETED", False)
    monkeypatch.setattr(transposed_tiles, "multiprocessors", lambda _device: MULTIPROCESSORS)
    (channels, height, width), plane = shape, shape[1] * shape[2]
    sizes = (2, width, 2, height, channels // 4)
    geometry = Geometry(sizes, (dense_strides(sizes, range(5)), (plane, 1, 2 * plane, width, 4 * plane)))
    cut = transposed_tiles.cut_dims(geometry)
    tile = tile_for(transposed_tiles.sizes_of(geometry, cut), 2, torch.device("cpu"), transposed=False)
    assert cut.columns == (0, 1)
    assert tile.height * tile.width >= 2048


@pytest.mark.parametrize("factor", [2, 3])
@pytest.mark.parametrize("width", [17, 64])
def test_channels_become_pixels(factor: int, width: int) -> None:
    """Rows that are too short for a tile, and others."""
    assert_as_eager("pixel_shuffle.default", values(2, 2 * factor**2, 5, width), factor)


@pytest.mark.parametrize("op", ["reflection_pad2d.default", "replication_pad2d.default", "constant_pad_nd.default"])
def test_pads_with_odd_rows_and_many_channels_are_as_eager(op: str) -> None:
    """Rows of 66 elements."""
    assert_as_eager(op, values(64, 64, 64), [1, 1, 1, 1])


@pytest.mark.parametrize(("height", "groups"), [(115, ((2, 3), (1,))), (65, ((), (1, 2, 3)))])
def test_a_pad_takes_rows_of_one_image_if_tiles_fit_it(
    height: int, groups: tuple[Ints, Ints], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four tiles of 32 rows have 115, and three would have 65."""
    monkeypatch.setattr(transposed_tiles, "INTERPRETED", False)
    monkeypatch.setattr(transposed_tiles, "multiprocessors", lambda _device: MULTIPROCESSORS)
    geometry = dense(115, height, 64, 64)
    cut = Cut((), (1, 2, 3), (0,))
    actual, tile = framed_copies.by_images(geometry, cut, 2, torch.device("cpu"), transposed=False)
    assert (*groups, (0,)) == actual
    assert (32, 128) == tile


@pytest.mark.parametrize("op", ["reflection_pad2d.default", "replication_pad2d.default", "constant_pad_nd.default"])
def test_pads_in_tiles_of_one_image_are_as_eager(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of 62 x 62 elements, dense, with gaps and with transposed dimensions."""
    monkeypatch.setattr(transposed_tiles, "INTERPRETED", False)
    monkeypatch.setattr(transposed_tiles, "multiprocessors", lambda _device: 1)
    x = values(4, 3, 60, 60)
    for given in (x[:2], x[:, :2], x[:2].transpose(2, 3)):
        assert_as_eager(op, given, [1, 1, 1, 1])


@pytest.mark.parametrize("pad", [[-3, -4, -3, -4], [0, -1], [-1, 0, 0, 0, -2, 0]])
def test_a_crop_is_a_copy_of_what_is_kept(pad: list[int]) -> None:
    """Also of a channels-last tensor, whose layout stays."""
    x = values(3, 4, 9, 11)
    assert_as_eager("constant_pad_nd.default", x, pad, 2.0)
    assert_as_eager("constant_pad_nd.default", x.to(memory_format=torch.channels_last), pad)


@pytest.mark.parametrize(
    ("numel", "itemsize", "expected"), [(2048, 2, 512), (262_144, 2, 512), (400_000, 2, 1024), (1 << 22, 2, 2048)]
)
def test_a_small_call_has_small_tiles(
    numel: int, itemsize: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two for each multiprocessor, but never fewer than four elements for a thread."""
    monkeypatch.setattr(tiles, "INTERPRETED", False)
    cut = tiles.tiles_of.__wrapped__(dense(numel), itemsize, MULTIPROCESSORS)
    assert (1, expected) == (cut.block_r, cut.block_c)
    assert math.prod(cut.columns.shape_D) == numel


@pytest.mark.parametrize(("numel", "ragged"), [(96, False), (100, True), (31, False), (97, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_whole_tiles_and_the_last_one_of_a_ragged_call_are_as_eager(
    numel: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, *, ragged: bool
) -> None:
    """Whole tiles have no mask, operands that are not dense keep theirs, and nothing beyond the end is written."""
    small_tiles(monkeypatch, 32)
    tiles.tiles_of.cache_clear()
    assert ragged == tiles.tiles_of(dense(numel), 4, 1).ragged
    x, y = values(numel, dtype=dtype), values(3 * numel, dtype=dtype)[::3]
    assert_as_eager("exp.default", x)
    assert_as_eager("add.Tensor", x, y)
    assert_as_eager("mse_loss.default", x, x.flip(0))
    assert_as_eager("clone.default", x)
    assert_as_eager("_to_copy.default", x, dtype=torch.float64)
    memory = torch.full((numel + 40,), 7.0, dtype=dtype)
    kernel("zero_.default")(memory[:numel])
    assert [0] * numel + [7] * 40 == memory.tolist()
    tiles.tiles_of.cache_clear()


@pytest.mark.parametrize(
    ("columns", "rows", "itemsize", "unit"),
    [(40, (0, 40), 4, 4), (40, (0, 40), 2, 8), (36, (36, 72), 2, 4), (35, (35, 70), 4, 1), (40, (0, 41), 4, 1)],
)
def test_rows_consist_of_units_that_all_layouts_share(
    columns: int, rows: tuple[int, int], itemsize: int, unit: int
) -> None:
    """Of 16 bytes at most, where every row of every operand begins and ends at a multiple."""
    strides = (dense_strides((columns, 4, 9), range(3)), (1, *rows))
    assert unit == tiles.tiles_of(Geometry((columns, 4, 9), strides), itemsize, MULTIPROCESSORS).unit


def test_rows_of_multiples_of_16_need_no_unit() -> None:
    """The compiler sees them, and a dense call has one row."""
    strides = (dense_strides((48, 4, 9), range(3)), (1, 0, 48))
    assert tiles.tiles_of(Geometry((48, 4, 9), strides), 4, MULTIPROCESSORS).unit == 1
    assert tiles.tiles_of(dense(40), 4, MULTIPROCESSORS).unit == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("columns", [36, 40, 34])
def test_rows_of_units_are_as_eager(columns: int, dtype: torch.dtype) -> None:
    """An expanded operand, one with gaps, a row and a column that are broadcast."""
    expanded = values(9, 1, columns, dtype=dtype).expand(9, 4, columns)
    assert_as_eager("div.Scalar", expanded, 4)
    with_gaps = values(9, 4, 2 * columns, dtype=dtype)[..., :columns]
    for other in (with_gaps, values(columns, dtype=dtype), values(4, 1, dtype=dtype), values(9, 1, 1, dtype=dtype)):
        assert_as_eager("add.Tensor", expanded, other)
    assert_as_eager("masked_fill.Scalar", with_gaps, values(9, 4, 1) > 0, 2.0)
