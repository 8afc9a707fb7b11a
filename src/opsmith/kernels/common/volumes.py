"""Images: batches of lines, planes or volumes with channels, all seen as volumes.

A tensor ``(N, C, W)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``, with or without N, is described by five
sizes and five strides, so that one kernel serves one to three spatial dimensions; the dimensions that
are not there have size 1 and cost nothing, since Triton compiles a size of 1 as a constant.

A kernel writes a dense volume tile by tile: the columns of a tile run along the dimension that is fastest
in memory, W or, for channels-last tensors, C; its rows number all the others.

Suffixes: ``_NCDHW`` one entry for each of the five dimensions, ``_S`` one for each of the spatial three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .indexing import Ints, dense_strides
from .launch import INTERPRETED, INTERPRETED_TILE, multiprocessors


class Volume(NamedTuple):
    """Sizes and strides by role, of absent dimensions 1 and 0."""

    shape_NCDHW: Ints
    strides_NCDHW: Ints

    @property
    def spatial(self) -> Ints:
        """Depth, height and width."""
        return self.shape_NCDHW[2:]

    def has_seamless_planes(self) -> bool:
        """Whether N and C could be one dimension."""
        (N, C), (stride_N, stride_C) = self.shape_NCDHW[:2], self.strides_NCDHW[:2]
        return N == 1 or C == 1 or stride_N == C * stride_C

    def with_planes_as_batch(self) -> Volume:
        """The same elements with N C as its batch and one channel."""
        (N, C), (stride_N, stride_C) = self.shape_NCDHW[:2], self.strides_NCDHW[:2]
        step = stride_N if C == 1 else stride_C
        return Volume((N * C, 1, *self.spatial), (step, 0, *self.strides_NCDHW[2:]))

    def reach(self) -> int:
        """No offset exceeds this."""
        return sum(size * stride for size, stride in zip(self.shape_NCDHW, self.strides_NCDHW, strict=True))


class Tiles(NamedTuple):
    """How a dense volume is cut into programs."""

    grid: tuple[int, int]
    rows: int
    columns: int
    block_rows: int
    block_columns: int


@triton.jit
def tile_of(
    rows: tl.tensor, columns: tl.tensor, INDEX: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
) -> tl.tuple:
    """Rows and columns of this program's tile, and which elements of it the volume has."""
    row = tl.program_id(0).to(INDEX) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = tl.program_id(1).to(INDEX) * BLOCK_C + tl.arange(0, BLOCK_C)
    return row, column, (row < rows)[:, None] & (column < columns)[None, :]


@triton.jit
def place_of(
    row: tl.tensor, column: tl.tensor, C: tl.tensor, size_S: tl.tuple, CHANNELS_LAST: tl.constexpr
) -> tl.tuple:
    """Batch, channel, depth, height and width of a tile's elements, each of a shape that broadcasts to the tile's."""
    if CHANNELS_LAST:
        c, w = column[None, :], (row % size_S[2])[:, None]
        row = row // size_S[2]
    else:
        w = column[None, :]
    h = (row % size_S[1])[:, None]
    row = row // size_S[1]
    d = (row % size_S[0])[:, None]
    row = row // size_S[0]
    if not CHANNELS_LAST:
        c = (row % C)[:, None]
        row = row // C
    return row[:, None], c, d, h, w


def volume_of(tensor: torch.Tensor, spatial: int) -> Volume:
    """Describe a tensor with ``spatial`` spatial dimensions, channels, and perhaps a batch dimension."""
    return volume_from(tuple(tensor.shape), tensor.stride(), spatial)


def volume_from(shape: Ints, strides: Ints, spatial: int) -> Volume:
    """As :func:`volume_of`, from a shape and strides."""
    absent = 3 - spatial
    batch = 1 if len(shape) == spatial + 2 else 0
    sizes = (*([1] * (1 - batch)), *shape[: batch + 1], *([1] * absent), *shape[batch + 1 :])
    steps = (*([0] * (1 - batch)), *strides[: batch + 1], *([0] * absent), *strides[batch + 1 :])
    return Volume(sizes, steps)


def aligned_volumes(tensors: Sequence[torch.Tensor], spatial: int, *, channels_last: bool) -> list[Volume]:
    """Describe tensors whose batch and channels agree, for a kernel that writes the last one.

    Where N and C lie seamlessly behind each other in all, they become one dimension, which saves a row-major
    kernel a division.
    """
    volumes = [volume_of(tensor, spatial) for tensor in tensors]
    if channels_last or any(not volume.has_seamless_planes() for volume in volumes):
        return volumes
    return [volume.with_planes_as_batch() for volume in volumes]


def channels_first(strides_NCDHW: Ints) -> tuple[int, int, Ints]:
    """Strides as kernels take them: of N, of C, and of the spatial dimensions."""
    return strides_NCDHW[0], strides_NCDHW[1], strides_NCDHW[2:]


def require_volume(tensor: torch.Tensor, spatial: int, *, empty_batch: bool = True) -> None:
    """Refuse a tensor that has other dimensions than ``(N, C, *spatial)`` or ``(C, *spatial)``, or an empty one.

    Raises:
        ValueError: as above; the batch alone may be empty, unless ``empty_batch`` says else.
    """
    batched = tensor.ndim == spatial + 2
    if not batched and tensor.ndim != spatial + 1:
        raise ValueError(f"expected {spatial + 1} or {spatial + 2} dimensions, not {list(tensor.shape)}")
    if 0 in tensor.shape[int(batched and empty_batch) :]:
        raise ValueError(f"only the batch may be empty, not {list(tensor.shape)}")


def prefers_channels_last(tensor: torch.Tensor) -> bool:
    """Whether eager lays a result out as channels last because this argument is: by its strides, gaps or not.

    The rule of torch's ``suggest_memory_format``: strides that do not fall from N over the spatial
    dimensions to C, of a tensor of four or five dimensions.
    """
    if tensor.ndim not in (4, 5) or 0 in tensor.shape or tensor.stride(1) == 0:
        return False
    least = 0
    for dim in (1, *range(tensor.ndim - 1, 1, -1), 0):
        size, stride = tensor.shape[dim], tensor.stride(dim)
        # An (N, 1, 1, 1) tensor is both; it counts as row-major.
        if stride < least or (dim == 0 and least == tensor.stride(1)):
            return False
        least = stride * size if size > 1 else stride
    return True


def empty_volume(shape: Ints, dtype: torch.dtype, device: torch.device, *, channels_last: bool = False) -> torch.Tensor:
    """A dense tensor of this shape to be filled by a kernel."""
    if not channels_last:
        return torch.empty(shape, dtype=dtype, device=device)
    order = (1, *range(len(shape) - 1, 1, -1), 0)
    return torch.empty_strided(shape, dense_strides(shape, order), dtype=dtype, device=device)


def tiles_of(
    volume: Volume, device: torch.device, *, channels_last: bool, most_columns: int = 128, most_elements: int = 1024
) -> Tiles:
    """Cut a dense volume into tiles of about ``most_elements``, fewer where that leaves a device idle."""
    shape = volume.shape_NCDHW
    columns = shape[1] if channels_last else shape[4]
    rows = math.prod(shape) // columns
    widest = triton.next_power_of_2(columns)
    if INTERPRETED:
        block_columns = min(widest, INTERPRETED_TILE)
        block_rows = min(triton.next_power_of_2(rows), INTERPRETED_TILE // block_columns)
    else:
        block_columns = min(widest, most_columns)
        elements = min(1024 if math.prod(shape) >= 2048 * multiprocessors(device) else 256, most_elements)
        block_rows = min(triton.next_power_of_2(rows), max(elements // block_columns, 1))
    grid = (triton.cdiv(rows, block_rows), triton.cdiv(columns, block_columns))
    return Tiles(grid, rows, columns, block_rows, block_columns)


def volume_index_type(*volumes: Volume) -> tl.dtype:
    """int32 where every offset fits, with room for the last block; else int64."""
    reach = max(max(volume.reach(), math.prod(volume.shape_NCDHW)) for volume in volumes)
    return tl.int32 if reach < (1 << 31) - (1 << 20) else tl.int64
