"""Two-dimensional tiles over tensors of any number of dimensions.

A kernel that moves elements walks its result in tiles ``x_AB``. The columns B run along the dimension in which
the result is contiguous, the rows A along the one in which the source is; where these are the same dimension, the
rows are all others. So one side's accesses are whole cache lines whichever way the tensors lie, Triton transposes
the tile through shared memory where they differ, and a dimension is divided out once a row or column,
not once an element. What neither side takes is left to the number of the program: the batch S.

Suffixes: ``_A`` rows, ``_B`` columns, ``_S`` batch, ``_D`` one entry per dimension.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .indexing import Geometry, Ints, merge_dims, offset_of
from .launch import INTERPRETED, INTERPRETED_TILE, multiprocessors

#: What a program moves: four 16-byte accesses for each of 128 threads.
TILE_BYTES = 8192
#: Elements of a tile that is worth a program.
SMALLEST_TILE = 2048
#: A stride beyond this many elements puts neighbours into different cache lines: following it gains nothing.
FAR = 32
#: Short dimensions are taken together up to this many elements.
GROUP = 256
#: A side of fewer elements fills no sector of memory, and is not worth transposing a tile.
SHORT = 16


class Cut(NamedTuple):
    """The dimensions of a geometry in three groups, each fastest first."""

    batch: Ints
    rows: Ints
    columns: Ints


class TransposedTile(NamedTuple):
    """How many rows and columns a program takes."""

    height: int
    width: int


def cut_dims(geometry: Geometry, source: int = 1) -> Cut:
    """Columns along the first operand's contiguous dimension, rows along operand ``source``'s.

    Short dimensions are taken together. Where both sides are too short for a tile, as where pixels are dealt out of a
    few channels, both are columns: a sector of the source is read by neighbouring lanes in turn. Operand 0 comes
    fastest first.
    """
    sizes, strides = geometry.shape_D, geometry.strides_ID[source]
    near = [d for d in range(len(sizes)) if 0 < abs(strides[d]) <= FAR]
    along = min(near, key=lambda d: abs(strides[d]), default=0)
    taken = 1
    while taken < len(sizes) and taken != along and math.prod(sizes[: taken + 1]) <= GROUP:
        taken += 1
    columns = tuple(range(taken))
    rest = tuple(d for d in range(taken, len(sizes)) if d != along)
    if along < taken:
        return Cut((), rest, columns)
    short = math.prod(sizes[:taken])
    if short < SHORT <= sizes[along] and short * sizes[along] < SMALLEST_TILE and rest:
        return Cut((), rest, (*columns, along))
    if sizes[along] < SHORT or INTERPRETED:
        return Cut((), (along, *rest), columns)
    return Cut(rest, (along,), columns)


def sizes_of(geometry: Geometry, cut: Cut) -> Ints:
    """The number of batches, rows and columns."""
    return tuple(math.prod(geometry.shape_D[d] for d in group) for group in cut)


def tile_for(sizes: Ints, itemsize: int, device: torch.device, *, transposed: bool) -> TransposedTile:
    """A tile of :data:`TILE_BYTES`, smaller where the whole would not fill the device.

    Args:
        sizes: batches, rows, columns.
        itemsize: bytes of an element.
        device: where it runs.
        transposed: the source is contiguous along the rows, so that both sides have to be long.
    """
    batches, rows, columns = sizes
    height, width = triton.next_power_of_2(rows), triton.next_power_of_2(columns)
    if INTERPRETED:
        width = min(width, INTERPRETED_TILE)
        return TransposedTile(min(height, INTERPRETED_TILE // width), width)
    elements = min(TILE_BYTES // itemsize, 4096)
    # Transposing needs a cache line's length on both sides: 64 x 64 elements of 2 bytes, 32 x 64 of 4.
    widest = 64 if transposed and height >= 16 else elements
    width = min(width, widest)
    height = min(height, max(elements // width, 1))
    width = min(triton.next_power_of_2(columns), elements // height)
    # Of 527 columns, one tile of 1024 would waste half of its lanes; nine of 64 waste a twelfth.
    # 66 columns have 96 lanes in tiles of 32, where those of 64 have 128.
    narrowest = 64 if transposed else 32
    while width > narrowest and triton.cdiv(columns, width) * width > 1.2 * columns:
        width //= 2
    height = min(triton.next_power_of_2(rows), elements // width)
    wanted = 2 * multiprocessors(device)
    while height * width > 512 and batches * triton.cdiv(rows, height) * triton.cdiv(columns, width) < wanted:
        height, width = (height, width // 2) if width > height else (height // 2, width)
    return TransposedTile(height, width)


class Side(NamedTuple):
    """Shape and strides of one operand in one group of dimensions, merged as far as this operand allows."""

    shape_D: Ints
    strides_D: Ints


@functools.lru_cache(maxsize=4096)
def sides(geometry: Geometry, cut: Cut, operand: int) -> tuple[Side, Side, Side]:
    """Where an operand's batches, rows and columns lie."""
    batch, rows, columns = (
        Side(merged.shape_D, merged.strides_ID[0])
        for merged in (merge_dims(geometry.shape_D, [geometry.strides_ID[operand]], group) for group in cut)
    )
    return batch, rows, columns


def programs(sizes: Ints, tile: TransposedTile) -> int:
    """The number of tiles."""
    batches, rows, columns = sizes
    return int(batches * triton.cdiv(rows, tile.height) * triton.cdiv(columns, tile.width))


@triton.jit
def tile_indices(
    rows: tl.tensor, columns: tl.tensor, INDEX: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr
) -> tl.tuple:
    """This program's batch, rows and columns; neighbouring programs are neighbours along the columns."""
    across = tl.cdiv(columns, WIDTH)
    down = tl.cdiv(rows, HEIGHT)
    program = tl.program_id(0)
    b = (program % across).to(INDEX) * WIDTH + tl.arange(0, WIDTH)
    a = (program // across % down).to(INDEX) * HEIGHT + tl.arange(0, HEIGHT)
    s = (program // across // down).to(INDEX)
    return s, a, b


@triton.jit
def offset_in(index: tl.tensor, side: tl.tuple) -> tl.tensor:
    """Offset of an index in one group of dimensions of one operand: a :class:`Side`."""
    return offset_of(index, side[0], side[1])
