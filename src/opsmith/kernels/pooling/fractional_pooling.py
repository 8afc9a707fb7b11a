"""Fractional max pooling: windows of one size at pseudo-random distances (Graham, 2014).

With ``alpha = (size - kernel) / (out - 1)`` and a sample u in [0, 1) for each plane and dimension, the window of
output ``o`` begins at ``floor((o + u) alpha) - floor(u alpha)``, the last one at ``size - kernel``. Traffic as in
max pooling.

Backward does not know u, but a window begins less than 1 before or after ``o alpha``: an input position looks into
the windows that could hold it for any u and adds the gradient of those whose index names it.

Suffixes: ``_S`` one entry for each of depth, height and width, ``_RC`` a tile of rows and columns (volumes.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Ints, converted, number
from ..common.launch import await_earlier_kernels, compute_type, launch, number_bits, require_served
from ..common.volumes import channels_first, place_of, require_volume, tile_of, tiles_of, volume_index_type, volume_of
from ..common.windows import Window, place_in_box, spatial_numbers
from .max_pooling import Op, max_backward


@triton.jit
def fractional_start(
    o: tl.tensor,
    sample: tl.tensor,
    size: tl.tensor,
    out: tl.tensor,
    kernel: tl.constexpr,
    alpha_bits: tl.tensor,
) -> tl.tensor:
    """Where the window of output ``o`` begins."""
    alpha = number(alpha_bits, sample.dtype)[:, None]
    first = ((o.to(sample.dtype) + sample) * alpha).to(o.dtype) - (sample * alpha).to(o.dtype)
    return tl.where(o == out - 1, size - kernel, first)


@triton.jit
def fractional_max_kernel(
    out_ptr: tl.tensor,
    index_ptr: tl.tensor,
    x_ptr: tl.tensor,
    sample_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    sample_stride_N: tl.tensor,
    sample_stride_C: tl.tensor,
    sample_offsets_S: tl.tuple,
    alpha_bits_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    KERNEL_S: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane walks the window of one output."""
    await_earlier_kernels()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    n, c, d, h, w = place_of(row, column, C, out_S, False)
    sample_plane_ptr = sample_ptr + (n * sample_stride_N + c * sample_stride_C)
    row_mask = (row < rows)[:, None]
    u_d = tl.load(sample_plane_ptr + sample_offsets_S[0], mask=row_mask, other=0).to(COMPUTE)
    u_h = tl.load(sample_plane_ptr + sample_offsets_S[1], mask=row_mask, other=0).to(COMPUTE)
    u_w = tl.load(sample_plane_ptr + sample_offsets_S[2], mask=row_mask, other=0).to(COMPUTE)
    first_d = fractional_start(d, u_d, size_S[0], out_S[0], KERNEL_S[0], alpha_bits_S[0])
    first_h = fractional_start(h, u_h, size_S[1], out_S[1], KERNEL_S[1], alpha_bits_S[1])
    first_w = fractional_start(w, u_w, size_S[2], out_S[2], KERNEL_S[2], alpha_bits_S[2])
    plane_ptr = x_ptr + (n * stride_N + c * stride_C)
    best_RC = tl.full([BLOCK_R, BLOCK_C], float("-inf"), COMPUTE)
    at_RC = (first_d * size_S[1] + first_h) * size_S[2] + first_w
    for k in range(KERNEL_S[0] * KERNEL_S[1] * KERNEL_S[2]):
        kd, kh, kw = place_in_box(k, KERNEL_S)
        offset = (first_d + kd) * strides_S[0] + (first_h + kh) * strides_S[1] + (first_w + kw) * strides_S[2]
        x_RC = tl.load(plane_ptr + offset, mask=mask, other=0).to(COMPUTE)
        is_larger = (x_RC > best_RC) | (x_RC != x_RC)  # noqa: PLR0124 - NaN
        here = ((first_d + kd) * size_S[1] + first_h + kh) * size_S[2] + first_w + kw
        best_RC, at_RC = tl.where(is_larger, x_RC, best_RC), tl.where(is_larger, here, at_RC)
    offset_RC = row[:, None] * columns + column[None, :]
    tl.store(out_ptr + offset_RC, converted(best_RC, out_ptr.dtype.element_ty), mask=mask)
    tl.store(index_ptr + offset_RC, at_RC.to(tl.int64), mask=mask)


def _sizes(x: torch.Tensor, spatial: int, kernel_size: Sequence[int], output_size: Sequence[int]) -> tuple[Ints, Ints]:
    """Kernel and output sizes in three dimensions.

    Raises:
        ValueError: the windows do not fit the input.
    """
    require_volume(x, spatial)
    kernel_S = spatial_numbers(kernel_size, spatial, "kernel_size", 1)
    out_S = spatial_numbers(output_size, spatial, "output_size", 1)
    fits = (out + k - 1 <= size for out, k, size in zip(out_S, kernel_S, volume_of(x, spatial).spatial, strict=True))
    if min(kernel_S + out_S) < 1 or not all(fits):
        raise ValueError(f"{list(output_size)} windows of {list(kernel_size)} do not fit {list(x.shape)}")
    return kernel_S, out_S


def _alphas(size_S: Ints, kernel_S: Ints, out_S: Ints) -> list[float]:
    """The mean distance between windows; of a single one it is not used."""
    return [(size - k) / max(out - 1, 1) for size, k, out in zip(size_S, kernel_S, out_S, strict=True)]


def _fractional_max(
    x: torch.Tensor,
    spatial: int,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    samples: torch.Tensor,
    sample_of_S: Ints,
) -> tuple[torch.Tensor, torch.Tensor]:
    require_served(x, samples, dtypes=FLOATS)
    kernel_S, out_S = _sizes(x, spatial, kernel_size, output_size)
    batch = x.shape[0] if x.ndim == spatial + 2 else 1
    if tuple(samples.shape) != (batch, x.shape[-spatial - 1], spatial) or samples.dtype != x.dtype:
        raise ValueError(f"the samples do not fit: {samples.dtype} of {list(samples.shape)}")
    shape = (*x.shape[:-spatial], *out_S[3 - spatial :])
    out = torch.empty(shape, dtype=x.dtype, device=x.device)
    index = torch.empty(shape, dtype=torch.int64, device=x.device)
    if out.numel() == 0:
        return out, index
    volume, result = volume_of(x, spatial), volume_of(out, spatial)
    tiles = tiles_of(result, x.device, channels_last=False)
    compute = compute_type(x.dtype)
    launch(
        fractional_max_kernel,
        tiles.grid,
        x.device,
        out,
        index,
        x,
        samples,
        *channels_first(volume.strides_NCDHW),
        samples.stride(0),
        samples.stride(1),
        tuple(place * samples.stride(2) for place in sample_of_S),
        tuple(number_bits(alpha, compute) for alpha in _alphas(volume.spatial, kernel_S, out_S)),
        volume.shape_NCDHW[1],
        volume.spatial,
        out_S,
        tiles.rows,
        tiles.columns,
        KERNEL_S=kernel_S,
        COMPUTE=compute,
        INDEX=volume_index_type(volume, result),
        BLOCK_R=tiles.block_rows,
        BLOCK_C=tiles.block_columns,
    )
    return out, index


def fractional(spatial: int, sample_of_S: Ints) -> tuple[Op, Op]:
    """Maxima with where each lies, and their gradient by the input; ``sample_of_S`` says which sample is whose."""

    def op(
        self: torch.Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return _fractional_max(self, spatial, kernel_size, output_size, random_samples, sample_of_S)

    def backward(
        grad_output: torch.Tensor,
        self: torch.Tensor,
        kernel_size: Sequence[int],
        output_size: Sequence[int],
        indices: torch.Tensor,
    ) -> torch.Tensor:
        kernel_S, out_S = _sizes(self, spatial, kernel_size, output_size)
        if tuple(grad_output.shape[-spatial:]) != out_S[3 - spatial :]:
            raise ValueError(f"the gradient must be of {list(output_size)}, not {list(grad_output.shape)}")
        windows = tuple(Window(kernel, 0, 0, 1) for kernel in kernel_S)
        return max_backward(grad_output, self, indices, spatial, windows, channels_last=False)

    return op, backward


# Planes have samples of width and height, volumes of depth, height and width.
fractional_max_pool2d, fractional_max_pool2d_backward = fractional(2, (0, 1, 0))
fractional_max_pool3d, fractional_max_pool3d_backward = fractional(3, (0, 1, 2))
