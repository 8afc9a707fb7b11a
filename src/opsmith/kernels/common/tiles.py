"""How an elementwise call is cut into tiles ``x_RC``: columns along the output's fastest dimension, rows the rest.

A row costs its offset once instead of once an element, whose divisions by the sizes of dimensions
would take longer than memory does for half types. Three cuts:

- one merged dimension: one row; plain 16-byte accesses;
- an operand whose fastest dimension is not the output's: its own one leads the rows, so that the tile is read along
  the rows and written along the columns, and the compiler transposes it in shared memory;
- short columns: every dimension is a column, and an operand that lies as the output does takes its flat index as it is.

Suffixes: ``_D`` one entry per dimension, ``_L`` one per layout, ``_T`` one per tensor.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import triton

from .indexing import Geometry, Ints
from .launch import INTERPRETED, INTERPRETED_TILE

#: Columns that are shorter than this are walked together with the other dimensions.
SHORTEST_COLUMNS = 32
#: A dimension has to be this long for a tile to be transposed along it.
SHORTEST_TRANSPOSED = 8
#: Elements of the smallest tile: four for each thread, as eager's.
SMALLEST_TILE = 512
#: Bytes of the widest operand that a thread moves: two 16-byte accesses.
_BYTES_PER_THREAD = 32
_THREADS = 128


class Tiles(NamedTuple):
    """The cut of a call.

    Attributes:
        rows: dimensions and, for each layout, strides of the rows.
        columns: as ``rows``, of the columns.
        layout_T: which layout each tensor has.
        dense_L: whether a layout's offsets are the column numbers themselves.
        ragged: whether a dense call's end is none that the compiler knows to be aligned, and tiles before it are whole.
        unit: neighbours, 16 bytes of the widest element at most, of which every row consists in each layout.
        block_r: rows of a tile.
        block_c: columns of a tile.
        warps: of the program that owns a tile.
    """

    rows: Geometry
    columns: Geometry
    layout_T: Ints
    dense_L: tuple[bool, ...]
    ragged: bool
    unit: int
    block_r: int
    block_c: int
    warps: int


@functools.lru_cache(maxsize=4096)
def tiles_of(geometry: Geometry, itemsize: int, multiprocessors: int) -> Tiles:
    """Cut a call whose tensors have the strides of ``geometry``, the output's first.

    Args:
        geometry: the merged dimensions of the call.
        itemsize: bytes of the widest element.
        multiprocessors: of the device.
    """
    layouts_LD = tuple(dict.fromkeys(geometry.strides_ID))
    layout_T = tuple(layouts_LD.index(strides_D) for strides_D in geometry.strides_ID)
    shape_D = geometry.shape_D
    transposed = _transposed_dim(shape_D, layouts_LD)
    if transposed is not None:
        columns, rows = [0], [transposed, *(d for d in range(1, len(shape_D)) if d != transposed)]
    elif len(shape_D) == 1 or shape_D[0] >= SHORTEST_COLUMNS:
        columns, rows = [0], list(range(1, len(shape_D)))
    else:
        columns, rows = list(range(len(shape_D))), []
    parts = _part(shape_D, layouts_LD, rows), _part(shape_D, layouts_LD, columns)
    dense_D = _dense_strides(shape_D)
    dense_L = tuple(not rows and strides_D == dense_D for strides_D in layouts_LD)
    R, C = parts[0].numel(), parts[1].numel()
    elements = _elements(R * C, itemsize, multiprocessors)
    block_r, block_c, warps = _sides(R, C, itemsize, elements, transposes=transposed is not None)
    # Triton tells multiples of 16 apart from other numbers.
    ragged = dense_L[0] and C % 16 != 0 and block_c < C
    unit = 1 if dense_L[0] or transposed is not None else _unit(*parts, itemsize)
    return Tiles(*parts, layout_T, dense_L, ragged, unit, block_r, block_c, warps)


def _unit(rows: Geometry, columns: Geometry, itemsize: int) -> int:
    """See :class:`Tiles`; 1 where the compiler sees it by itself, which tells multiples of 16 from other numbers."""
    if len(columns.shape_D) > 1 or any(strides_D[0] > 1 for strides_D in columns.strides_ID):
        return 1
    numbers = (columns.numel(), *(step for strides_D in rows.strides_ID for step in strides_D))
    if not any(number % 16 for number in numbers):
        return 1
    return math.gcd(16 // itemsize, *numbers)


def _transposed_dim(shape_D: Ints, layouts_LD: tuple[Ints, ...]) -> int | None:
    """The fastest dimension of the first layout that runs along another one than the output's fastest."""
    for strides_D in layouts_LD:
        fastest = min((d for d, step in enumerate(strides_D) if step), key=lambda d: strides_D[d], default=0)
        if strides_D[0] > 1 and fastest and min(shape_D[0], shape_D[fastest]) >= SHORTEST_TRANSPOSED:
            return fastest
    return None


def _part(shape_D: Ints, layouts_LD: tuple[Ints, ...], dims: list[int]) -> Geometry:
    """The geometry of some of the dimensions; of none, one element at offset 0."""
    if not dims:
        return Geometry((1,), ((0,),) * len(layouts_LD))
    return Geometry(tuple(shape_D[d] for d in dims), tuple(tuple(s[d] for d in dims) for s in layouts_LD))


def _dense_strides(shape_D: Ints) -> Ints:
    strides, step = [], 1
    for size in shape_D:
        strides.append(step)
        step *= size
    return tuple(strides)


def _elements(numel: int, itemsize: int, multiprocessors: int) -> int:
    """Elements of a tile that is not transposed: fewer where whole tiles would not be two for each multiprocessor."""
    elements = min(_THREADS * _BYTES_PER_THREAD // itemsize, 2048)
    while elements > SMALLEST_TILE and triton.cdiv(numel, elements) < 2 * multiprocessors:
        elements //= 2
    return elements


def _sides(R: int, C: int, itemsize: int, elements: int, *, transposes: bool) -> Ints:
    """Rows, columns and warps of a tile."""
    longest_r, longest_c = triton.next_power_of_2(max(R, 1)), triton.next_power_of_2(max(C, 1))
    if INTERPRETED:
        block_c = min(longest_c, INTERPRETED_TILE)
        return min(longest_r, INTERPRETED_TILE // block_c), block_c, 4
    if transposes:
        block_c = min(longest_c, 64)
        return min(longest_r, (4096 if itemsize <= 4 else 2048) // block_c), block_c, 8
    # Rows of 256 leave few of the lanes idle at a row's end and are long enough for whole memory transactions.
    block_r = min(longest_r, elements // min(longest_c, 256))
    return block_r, max(min(longest_c, elements // block_r), 1), 4
