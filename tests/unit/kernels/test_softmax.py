from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from tests.unit.kernels.against_eager import FLOATS, assert_as_eager, kernel, layouts, small_tiles, values

from opsmith.kernels.common import lanes
from opsmith.kernels.common.launch import launch
from opsmith.kernels.softmax import softmax, softmax_backward, unaligned_rows

SOFTMAX = "_softmax.default"
INFINITE = -float("inf")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_agrees_with_eager_in_every_layout(dtype: torch.dtype, dim: int) -> None:
    """The output is row-major whatever the input is."""
    for x in layouts(4, 5, 6, dtype=dtype).values():
        assert_as_eager(SOFTMAX, x, dim, half_to_float=False)


@pytest.mark.parametrize(("shape", "dim"), [((), 0), ((), -1), ((1,), 0), ((0, 3), 1), ((3, 0), 1)])
def test_softmax_of_scalars_and_empty_tensors(shape: tuple[int, ...], dim: int) -> None:
    """One element is 1; none is none."""
    assert_as_eager(SOFTMAX, values(*shape), dim, half_to_float=False)


ROWS = torch.tensor(
    [
        [1.0, INFINITE, 2.0, INFINITE],
        [INFINITE] * 4,
        [INFINITE, INFINITE, 1.0, 2.0],
        [1.0, 2.0, float("nan"), 3.0],
        [1e4, 0, 1, 2],
    ]
)


@pytest.mark.parametrize("pieces", [1, 2])
def test_masked_rows_come_out_as_in_eager(monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    """Read in one piece or two: a masked start, a masked row (NaN), a NaN, a huge value, one infinity."""
    small_tiles(monkeypatch, 64 if pieces == 1 else 2)
    assert_as_eager(SOFTMAX, ROWS, 1, half_to_float=False)
    assert_as_eager(SOFTMAX, torch.tensor([[1.0, float("inf"), 2.0, 3.0]]), 1, half_to_float=False)


@pytest.mark.parametrize("dim", [0, 1])
def test_long_rows_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch, dim: int) -> None:
    """Tiles of 16 in rows of 100, the last one short."""
    small_tiles(monkeypatch, 16)
    assert_as_eager(SOFTMAX, values(20, 100, scale=30) if dim else values(100, 20, scale=30), dim, half_to_float=False)


@pytest.fixture
def short_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read in tiles of 16, each by one program."""
    small_tiles(monkeypatch, 16)
    monkeypatch.setattr(unaligned_rows, "BLOCK", 16)


@pytest.mark.usefixtures("short_tiles")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("length", [107, 96, 98])
def test_rows_of_one_stretch_of_memory(dtype: torch.dtype, length: int) -> None:
    """Of any length, with gaps between them, and their gradients."""
    wide = values(3, 120, dtype=dtype)
    for x in (wide[:, :length], wide[:, :length].contiguous()):
        for op in (SOFTMAX, "_log_softmax.default"):
            assert_as_eager(op, x, 1, half_to_float=False)
        assert_as_eager("_softmax_backward_data.default", x, torch.softmax(x, 1), 1, dtype)
        assert_as_eager("_log_softmax_backward_data.default", x, torch.log_softmax(x, 1), 1, dtype)


@pytest.mark.usefixtures("short_tiles")
def test_infinities_and_nan_in_rows_of_one_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a tile of their own, in the edges, or beside other values; a row of minus infinity alone is 0 if asked."""
    monkeypatch.setattr(unaligned_rows, "BLOCK", 4)
    rows = torch.cat([ROWS, torch.tensor([[1.0, 200.0, float("inf"), INFINITE], [1.0, 1.0, 1.0, float("inf")]])])
    small_tiles(monkeypatch, 2)
    rows = rows.repeat_interleave(3, dim=1)
    for op in (SOFTMAX, "_log_softmax.default"):
        assert_as_eager(op, rows, 1, half_to_float=False)
        for columns in (3, 5, 11):
            assert_as_eager(op, rows[:, :columns].contiguous(), 1, half_to_float=False)
    assert_as_eager("_safe_softmax.default", rows, 1)


@pytest.fixture
def divided_rows(monkeypatch: pytest.MonkeyPatch, short_tiles: None) -> None:
    """As for a device of three multiprocessors: 12 parts at once, of which each row gets as many as there are tiles."""
    monkeypatch.setattr(unaligned_rows, "multiprocessors", lambda _device: 3)
    monkeypatch.setattr(unaligned_rows, "PART_BLOCK", 16)


@pytest.mark.usefixtures("divided_rows")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("rows", "length", "gap", "parts"), [(5, 107, 0, 2), (3, 96, 13, 4), (1, 100, 0, 7)])
def test_a_few_long_rows_are_divided_among_programs(
    dtype: torch.dtype, rows: int, length: int, gap: int, parts: int
) -> None:
    """Parts of several tiles and of one, where each starts anywhere within 16 bytes; in the gradients as well."""
    assert parts == unaligned_rows.parts_of(rows, length, torch.device("cpu"))
    x = values(rows, length + gap, dtype=dtype)[:, :length]
    for op in (SOFTMAX, "_log_softmax.default"):
        assert_as_eager(op, x, 1, half_to_float=False)
    assert_as_eager("_softmax_backward_data.default", x, torch.softmax(x, 1), 1, dtype)
    assert_as_eager("_log_softmax_backward_data.default", x, torch.log_softmax(x, 1), 1, dtype)


@pytest.mark.usefixtures("divided_rows")
def test_infinities_and_nan_in_a_part_of_a_row() -> None:
    """Parts of minus infinity alone, in a row of nothing else or beside numbers and infinity; a NaN beside either."""
    rows = values(5, 90)
    rows[0, :50] = rows[1] = rows[2, 30:60] = rows[4] = INFINITE
    rows[2, 88] = rows[3, 4] = float("inf")
    rows[3, 50] = rows[4, 41] = float("nan")
    for op in (SOFTMAX, "_log_softmax.default"):
        assert_as_eager(op, rows, 1, half_to_float=False)
    assert_as_eager("_safe_softmax.default", rows, 1)
    assert_as_eager("_softmax_backward_data.default", rows, torch.softmax(values(5, 90), 1), 1, torch.float32)


@pytest.mark.usefixtures("divided_rows")
def test_rows_are_divided_only_where_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six rows are two for each of three multiprocessors, and one launch; five are divided, and two launches."""
    grids: list[tuple[int, ...]] = []
    monkeypatch.setattr(softmax, "launch", lambda _kernel, grid, *_args, **_constants: grids.append(grid))
    for rows in (6, 5):
        kernel(SOFTMAX)(values(rows, 100), 1, half_to_float=False)
    assert [(6, 1), (5, 2), (5, 2)] == grids


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A row is a tile of its own; and which kernels are launched."""
    small_tiles(monkeypatch, 64)
    monkeypatch.setattr(unaligned_rows, "SHORTEST", 16)
    launched: list[str] = []

    def noted(kernel: Any, *args: Any, **constants: Any) -> None:
        launched.append(kernel.__name__)
        launch(kernel, *args, **constants)

    for module in (softmax, softmax_backward):
        monkeypatch.setattr(module, "launch", noted)
    return launched


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("length", "gap"), [(57, 0), (33, 7), (48, 5), (63, 1)])
def test_rows_of_a_tile_that_start_within_16_bytes(
    launched: list[str], dtype: torch.dtype, length: int, gap: int
) -> None:
    """Or end there, as in float64: eager's own logarithms of half types err on the CPU. And gradients of such rows."""
    x = values(6, length + gap, dtype=dtype)[:, :length]
    for op, exact in ((SOFTMAX, torch.softmax), ("_log_softmax.default", torch.log_softmax)):
        torch.testing.assert_close(kernel(op)(x, 1, half_to_float=False), exact(x.double(), 1).to(dtype))
    assert_as_eager("_softmax_backward_data.default", x, torch.softmax(x, 1), 1, dtype)
    assert_as_eager("_log_softmax_backward_data.default", x, torch.log_softmax(x, 1), 1, dtype)
    assert ["softmax_unaligned_rows_kernel"] * 2 + ["gradient_unaligned_rows_kernel"] * 2 == launched


def test_rows_of_a_tile_that_are_whole_16_bytes_have_no_edges(launched: list[str]) -> None:
    """Nor have rows of several strides."""
    for x in (values(6, 48), values(48, 6).t()):
        assert_as_eager(SOFTMAX, x, 1, half_to_float=False)
    assert {"softmax_rows_kernel"} == set(launched)


@pytest.mark.parametrize("length", [2, 7, 13])
def test_lanes_share_short_rows_that_start_within_16_bytes(
    monkeypatch: pytest.MonkeyPatch, launched: list[str], length: int
) -> None:
    """Several rows a program; turned for the lanes as one release of Triton has it, or not; and their gradients."""
    x = values(37, length, scale=9.0)
    x[3], x[5, 0] = INFINITE, INFINITE
    if length > 2:  # The interpreter warns of a lane that has nothing but NaN.
        x[7, -1] = float("nan")
    for turned in (False, True):
        monkeypatch.setattr(lanes, "_FIRST_WINS", tl.constexpr(value=turned))
        for kind in ("_softmax", "_log_softmax"):
            assert_as_eager(f"{kind}.default", x, 1, half_to_float=False)
            y = torch.softmax(x, 1)
            assert_as_eager(f"{kind}_backward_data.default", values(37, length), y, 1, torch.float32)
    assert {"softmax_short_rows_kernel", "gradient_short_rows_kernel"} == set(launched)


@pytest.mark.usefixtures("launched")
def test_infinities_and_nan_in_the_edges_and_the_body_of_a_row() -> None:
    """Edges or a body of minus infinity alone, a row of nothing else, infinity and NaN in either."""
    rows = values(8, 41)
    rows[0, 5:35] = rows[1, :4] = rows[1, 36:] = rows[2] = rows[7] = INFINITE
    rows[3, 0] = rows[4, 20] = float("inf")
    rows[5, 40] = rows[6, 20] = rows[7, 20] = float("nan")
    for op in (SOFTMAX, "_log_softmax.default"):
        assert_as_eager(op, rows, 1, half_to_float=False)
    assert_as_eager("_safe_softmax.default", rows, 1)


@pytest.mark.usefixtures("launched")
def test_half_to_float_widens_rows_that_start_within_16_bytes() -> None:
    """Results of another size are stored from the same element on."""
    x = values(5, 57, dtype=torch.float16)
    actual = kernel(SOFTMAX)(x, 1, half_to_float=True)
    torch.testing.assert_close(actual, torch.softmax(x.float(), 1))


def test_half_to_float_widens_float16_only() -> None:
    """Eager's CPU kernel refuses the flag; a CUDA device has it."""
    x = values(3, 8, dtype=torch.float16)
    with np.errstate(all="ignore"):
        actual = kernel(SOFTMAX)(x, 1, half_to_float=True)
    torch.testing.assert_close(actual, torch.softmax(x.float(), 1))
    with pytest.raises(TypeError, match="float16 only"):
        kernel(SOFTMAX)(x.float(), 1, half_to_float=True)


def test_integers_are_declined() -> None:
    """As eager does."""
    with pytest.raises(NotImplementedError, match="not served"):
        kernel(SOFTMAX)(torch.ones(3, dtype=torch.int64), 0, half_to_float=False)
