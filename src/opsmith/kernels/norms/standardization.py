"""Row-wise normalization, which layer, group, batch and RMS norm share: ``y = (x - mean) * rstd * weight + bias``.

``rstd_M = 1 / sqrt(var_M + eps)`` with the biased variance of a row; an RMS norm takes 0 for the mean. The norms differ
in what is a row, see :mod:`matrix`, and along which of its parts the weight and the bias run: the rows of a batch norm
have one weight each, those of a layer norm one for each column, those of a group norm one for each channel, which is
the outer part of their columns.

Rows that fit a tile (:func:`standardize_rows_kernel`) are read once: ``2 * numel * itemsize`` bytes and one launch::

              columns t = (j, k), all of them
             +-------------------------------+
    BLOCK_M  |             x_MT              |   in registers: mean_M, then deviations from it, then rstd_M
    rows m   +-------------------------------+   y_MT is written from the same registers

Longer rows (:func:`standardize_splits_kernel`) are read twice. The first launch takes the moments of each split of a
row, from sums that are shifted by about the mean; the second one merges them by the formula of Chan, Golub and LeVeque
(1979) and writes ``y``, last rows and splits first, since what was read last is still in the cache::

             | split 0      | split 1      |
             +------+-------+------+-------+
    BLOCK_M  | step | step  | step | step  |     moments: partial_S3M = count, mean, sum of squared deviations
    rows m   +------+-------+------+-------+

Suffixes: ``_M`` rows, ``_J`` and ``_K`` the parts of the columns, ``_T`` columns of a tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Ints, contiguous_strides, converted, dense_strides, number, offset_of
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    multiprocessors,
    number_bits,
    pdl_prologue,
)
from ..common.matrix import (
    Matrix,
    Tiling,
    column_offsets,
    matrix_of,
    row_offsets,
    row_strides,
    side,
    spread_rows,
    tile_columns,
    tile_rows,
    tiling,
)
from ..reductions.moments import launch_moments, merged_moments

#: Elements of a row that a program holds in registers: 32 of them in each thread of 16 warps.
WHOLE_ROW = 1 << 14
#: Rows that share a tile, at least, where neighbours in memory belong to different rows: 16 bytes of a 2-byte type.
ACROSS = 8


class Strides(NamedTuple):
    """Of each operand in the dimensions of rows and outer columns, and in inner columns: :meth:`Matrix.strides`.

    ``running`` are those of the running mean and variance, which are vectors.
    """

    x: tuple[Any, ...]
    out: tuple[Any, ...]
    weight: tuple[Any, ...]
    bias: tuple[Any, ...]
    statistics: tuple[Any, ...]
    running: tuple[int, int]


# ---------------------------------------------------------------- in a kernel


@triton.jit
def spread(
    pointer: tl.tensor,
    m: tl.tensor,
    j: tl.tensor,
    k: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    ALONG: tl.constexpr,
    COMPUTE: tl.constexpr,
) -> tl.tensor:
    """A parameter where it meets ``x_MT``, loaded once along what it does not depend on.

    ``ALONG`` names what it depends on: rows ("M"), columns ("T") or both ("MT").
    """
    at_M = row_offsets(m, shape, strides)
    at_T = column_offsets(j, k, shape, strides)
    inside_T = (j < sizes[1]) & (k < sizes[2])
    if ALONG == "M":
        value = tl.load(pointer + at_M, mask=m < sizes[0], other=0)[:, None]
    elif ALONG == "T":
        value = tl.load(pointer + at_T, mask=inside_T, other=0)[None, :]
    else:
        inside = (m < sizes[0])[:, None] & inside_T[None, :]
        value = tl.load(pointer + at_M[:, None] + at_T[None, :], mask=inside, other=0)
    return value.to(COMPUTE)


@triton.jit
def spread_outer(
    pointer: tl.tensor,
    m: tl.tensor,
    first_j: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    COMPUTE: tl.constexpr,
    BLOCK_J: tl.constexpr,
) -> tl.tensor:
    """A parameter of rows and outer columns alone, as ``p_MJ``."""
    j = first_j + tl.arange(0, BLOCK_J)
    at_MJ = row_offsets(m, shape, strides)[:, None] + offset_of(j, shape[1], strides[1])[None, :]
    inside = (m < sizes[0])[:, None] & (j < sizes[1])[None, :]
    return tl.load(pointer + at_MJ, mask=inside, other=0).to(COMPUTE)


@triton.jit
def scaled_and_shifted(
    y_MT: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    step: tl.tensor,
    m: tl.tensor,
    shape: tl.tuple,
    weight_strides: tl.tuple,
    bias_strides: tl.tuple,
    sizes: tl.tuple,
    ALONG: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> tl.tensor:
    """``y * weight + bias`` for the tile of a step; either may be absent.

    ``ALONG`` names what they depend on: "M", "T", "MT", or "MJ" for rows and outer columns.
    """
    if ALONG == "MJ":
        # A tensor also where the step is 0 and a row has one column, which the compiler takes for numbers.
        first_j = (tl.full([], 0, m.dtype) + step // tl.cdiv(sizes[2], BLOCK_K)) * BLOCK_J
        y_MJK = tl.reshape(y_MT, [BLOCK_M, BLOCK_J, BLOCK_K])
        if weight_ptr is not None:
            weight_MJ = spread_outer(weight_ptr, m, first_j, shape, weight_strides, sizes, y_MT.dtype, BLOCK_J)
            y_MJK = y_MJK * weight_MJ[:, :, None]
        if bias_ptr is not None:
            bias_MJ = spread_outer(bias_ptr, m, first_j, shape, bias_strides, sizes, y_MT.dtype, BLOCK_J)
            y_MJK = y_MJK + bias_MJ[:, :, None]
        y_MT = tl.reshape(y_MJK, [BLOCK_M, BLOCK_J * BLOCK_K])
    else:
        j, k = tile_columns(step, sizes, m.dtype, BLOCK_J, BLOCK_K)
        if weight_ptr is not None:
            y_MT = y_MT * spread(weight_ptr, m, j, k, shape, weight_strides, sizes, ALONG, y_MT.dtype)
        if bias_ptr is not None:
            y_MT = y_MT + spread(bias_ptr, m, j, k, shape, bias_strides, sizes, ALONG, y_MT.dtype)
    return y_MT


@triton.jit
def update_running(
    running: tl.tuple,
    at_M: tl.tensor,
    is_row_M: tl.tensor,
    strides: tl.tuple,
    count: tl.tensor,
    mean_M: tl.tensor,
    squares_M: tl.tensor,
    momentum: tl.tensor,
) -> None:
    """Move running statistics towards the mean and the unbiased variance of this batch; either may be absent.

    ``running`` and ``strides`` are those of the mean and of the variance; ``squares`` sums of squared deviations.
    """
    mean_ptr, variance_ptr = running
    if mean_ptr is not None:
        mean_ptr_M = mean_ptr + at_M * strides[0]
        old_M = tl.load(mean_ptr_M, mask=is_row_M, other=0).to(mean_M.dtype)
        new_M = momentum * mean_M + (1 - momentum) * old_M
        tl.store(mean_ptr_M, converted(new_M, mean_ptr.dtype.element_ty), mask=is_row_M)
    if variance_ptr is not None:
        variance_ptr_M = variance_ptr + at_M * strides[1]
        old_M = tl.load(variance_ptr_M, mask=is_row_M, other=0).to(mean_M.dtype)
        new_M = momentum * (squares_M / (count - 1)) + (1 - momentum) * old_M
        tl.store(variance_ptr_M, converted(new_M, variance_ptr.dtype.element_ty), mask=is_row_M)


@triton.jit
def store_statistics(
    mean_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    at_M: tl.tensor,
    is_row_M: tl.tensor,
    mean_M: tl.tensor,
    rstd_M: tl.tensor,
) -> None:
    """Write the mean, if it is asked for, and the reciprocal standard deviation."""
    if mean_ptr is not None:
        tl.store(mean_ptr + at_M, converted(mean_M, mean_ptr.dtype.element_ty), mask=is_row_M)
    tl.store(rstd_ptr + at_M, converted(rstd_M, rstd_ptr.dtype.element_ty), mask=is_row_M)


# ---------------------------------------------------------------- the kernels


@triton.jit
def standardize_rows_kernel(
    out_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    running: tl.tuple,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    eps_bits: tl.tensor,
    momentum_bits: tl.tensor,
    CENTRE: tl.constexpr,
    ALONG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """BLOCK_M whole rows.

    Args:
        out_ptr: y.
        mean_ptr: (M,), or None for an RMS norm.
        rstd_ptr: (M,).
        x_ptr: what is normalized.
        weight_ptr: may be None.
        bias_ptr: may be None.
        running: the running mean and variance of a batch norm, or two times None.
        shape: the dimensions of m and of j, see :class:`Matrix`.
        strides: see :class:`Strides`.
        sizes: ``(M, J, K)``.
        eps_bits: added to the variance, see :func:`number_bits`.
        momentum_bits: of the running statistics.
        CENTRE: False for an RMS norm.
        ALONG: what weight and bias depend on, see :func:`scaled_and_shifted`.
        COMPUTE: the type of arithmetic.
        INDEX: the type of offsets.
        BLOCK_M: rows of a tile.
        BLOCK_J: outer columns, all of them.
        BLOCK_K: inner columns, all of them.
    """
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    is_row_M = m < sizes[0]
    j, k = tile_columns(0, sizes, INDEX, BLOCK_J, BLOCK_K)
    inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
    x_MT = row_offsets(m, shape, strides.x)[:, None] + column_offsets(j, k, shape, strides.x)[None, :]
    x_MT = tl.load(x_ptr + x_MT, mask=inside, other=0).to(COMPUTE)
    count = tl.full([1], sizes[1] * sizes[2], COMPUTE)
    mean_M = tl.zeros([BLOCK_M], COMPUTE)
    if CENTRE:
        # An empty row has mean 0 and, 0 / 0, no variance: as in eager.
        mean_M = tl.sum(x_MT, axis=1) / tl.maximum(count, 1.0)
        x_MT = tl.where(inside, x_MT - mean_M[:, None], 0)
    squares_M = tl.sum(x_MT * x_MT, axis=1)
    rstd_M = tl.rsqrt(squares_M / count + number(eps_bits, COMPUTE))
    y_MT = scaled_and_shifted(
        x_MT * rstd_M[:, None], weight_ptr, bias_ptr, 0, m, shape, strides.weight, strides.bias, sizes, ALONG, BLOCK_M,
        BLOCK_J, BLOCK_K,
    )  # fmt: skip
    out_MT = row_offsets(m, shape, strides.out)[:, None] + column_offsets(j, k, shape, strides.out)[None, :]
    tl.store(out_ptr + out_MT, converted(y_MT, out_ptr.dtype.element_ty), mask=inside)
    at_M = row_offsets(m, shape, strides.statistics)
    store_statistics(mean_ptr, rstd_ptr, at_M, is_row_M, mean_M, rstd_M)
    momentum = number(momentum_bits, COMPUTE)
    update_running(running, at_M, is_row_M, strides.running, count, mean_M, squares_M, momentum)


@triton.jit
def standardize_splits_kernel(
    out_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    running: tl.tuple,
    partial_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    eps_bits: tl.tensor,
    momentum_bits: tl.tensor,
    splits: tl.tensor,
    steps: tl.tensor,
    ALONG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """One split of BLOCK_M rows, in ``steps`` tiles, whose moments are merged from those of ``splits`` splits first.

    ``partial_ptr`` is (splits, 3, M), as :func:`.moments.merged_moments` reads it; the others are as for
    :func:`standardize_rows_kernel`. The last programs to read for the moments left their rows in the cache, so the
    order is reversed.
    """
    pdl_prologue()
    m = (tl.num_programs(0) - 1 - tl.program_id(0)).to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M)
    split = tl.num_programs(1) - 1 - tl.program_id(1)
    is_row_M = m < sizes[0]
    count_M, mean_M, squares_M = merged_moments(partial_ptr, m, sizes[0], splits, BLOCK_S)
    rstd_M = tl.rsqrt(squares_M / count_M + number(eps_bits, COMPUTE))
    if split == 0:
        at_M = row_offsets(m, shape, strides.statistics)
        store_statistics(mean_ptr, rstd_ptr, at_M, is_row_M, mean_M, rstd_M)
        momentum = number(momentum_bits, COMPUTE)
        update_running(running, at_M, is_row_M, strides.running, count_M, mean_M, squares_M, momentum)
    x_M = x_ptr + row_offsets(m, shape, strides.x)
    out_M = out_ptr + row_offsets(m, shape, strides.out)
    for step in range(steps):
        column = split * steps + step
        j, k = tile_columns(column, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        x_MT = tl.load(x_M[:, None] + column_offsets(j, k, shape, strides.x)[None, :], mask=inside, other=0)
        y_MT = scaled_and_shifted(
            (x_MT.to(COMPUTE) - mean_M[:, None]) * rstd_M[:, None], weight_ptr, bias_ptr, column, m, shape,
            strides.weight, strides.bias, sizes, ALONG, BLOCK_M, BLOCK_J, BLOCK_K,
        )  # fmt: skip
        out_MT = out_M[:, None] + column_offsets(j, k, shape, strides.out)[None, :]
        tl.store(out_MT, converted(y_MT, out_ptr.dtype.element_ty), mask=inside)


# ---------------------------------------------------------------- on the host


class Running(NamedTuple):
    """Running statistics that a batch norm keeps: vectors of one entry a row, or None."""

    mean: torch.Tensor | None
    variance: torch.Tensor | None
    momentum: float


#: Of a norm that keeps no statistics.
NOTHING_RUNS = Running(None, None, 0)


def standardize(
    x: torch.Tensor,
    columns: Sequence[int],
    parameters: tuple[torch.Tensor | None, torch.Tensor | None],
    outputs: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor],
    eps: float,
    *,
    centre: bool = True,
    running: Running = NOTHING_RUNS,
) -> None:
    """Standardize ``x`` over its dimensions ``columns``.

    Args:
        x: of a floating type, with at least one row.
        columns: the dimensions that a row's statistics are taken over.
        parameters: weight and bias, expanded to x's shape with strides of zero; either may be None.
        outputs: of x's shape; the means (None for an RMS norm), and the reciprocal standard deviations, both with one
            element for each row, row-major.
        eps: added to the variance.
        centre: False for an RMS norm.
        running: moved towards the statistics of this call; its vectors lie as the rows of the statistics do.
    """
    statistics = row_strides(x.shape, columns)
    strides_I = [x.stride(), outputs[0].stride(), *(statistics if p is None else p.stride() for p in parameters)]
    matrix = matrix_of(x.shape, [*strides_I, statistics], columns)
    along = dependence(matrix, enumerate(parameters, start=2))
    common = {"ALONG": along, "COMPUTE": compute_type(x.dtype), "INDEX": matrix.index}
    x_strides, out_strides, weight_strides, bias_strides, own_strides = (matrix.strides(n) for n in range(5))
    mean_stride, variance_stride = (0 if p is None else p.stride(0) for p in running[:2])
    arguments = (
        matrix.shape,
        Strides(x_strides, out_strides, weight_strides, bias_strides, own_strides, (mean_stride, variance_stride)),
        matrix.sizes,
        number_bits(eps, common["COMPUTE"]),
        number_bits(running.momentum, common["COMPUTE"]),
    )
    tensors = (*outputs, x, *parameters, (running.mean, running.variance))
    tiles = whole_rows(matrix, x.device)
    if tiles is not None:
        grid = (triton.cdiv(matrix.sizes[0], tiles.block_m),)
        launch(standardize_rows_kernel, grid, x.device, *tensors, *arguments, CENTRE=centre, **common, **tiles.blocks())
        return
    # Without the parameters' strides more dimensions merge; the order of the rows is the same.
    plain = matrix_of(x.shape, [x.stride()], columns)
    partial_S3M = launch_moments(x, plain, tiling(plain, x.device, merged=True), centre=centre)
    tiles = tiling(matrix, x.device)
    splits = partial_S3M.shape[0]
    launch(
        standardize_splits_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits),
        x.device,
        *tensors,
        partial_S3M,
        *arguments,
        splits,
        loop_bound(tiles.steps),
        **common,
        **tiles.blocks(),
        BLOCK_S=triton.next_power_of_2(splits),
    )


def whole_rows(
    matrix: Matrix,
    device: torch.device,
    *,
    most: int = WHOLE_ROW,
    per_thread: int = 32,
    least: int = 2048,
) -> Tiling | None:
    """Tiles of whole rows, or None where rows are too long for a program's registers.

    Args:
        matrix: what is cut; its first operand decides.
        device: what is to be filled.
        most: elements of a tile. Rows that are fewer than the multiprocessors, for which a second launch would cost
            more than it gains, may have twice as many.
        per_thread: elements of a tile that a thread holds, at most.
        least: elements of a tile, where there are enough rows.
    """
    M, J, K = matrix.sizes
    block_j, block_k = side(J, 1 << 30), side(K, 1 << 30)
    width = block_j * block_k
    if INTERPRETED:
        block_m = side(M, max(INTERPRETED_TILE // width, 1))
        return Tiling(block_m, block_j, block_k, 1, 1, 4) if width <= INTERPRETED_TILE else None
    if multiprocessors(device) >= M:
        most *= 2
    across = side(M, 64) if matrix.rows_are_faster else 1
    while across > ACROSS and across * width > most:
        across //= 2
    block_m = max(across, side(M, max(least // width, 1)))
    block_m = spread_rows(M, block_m, device, fewest=min(across, ACROSS))
    tile = block_m * width
    if tile > most:
        return None
    return Tiling(block_m, block_j, block_k, 1, 1, min(max(tile // 32 // per_thread, 4), 32))


def dependence(matrix: Matrix, parameters: Iterable[tuple[int, torch.Tensor | None]]) -> str:
    """What parameters depend on, as :func:`scaled_and_shifted` names it; each comes with its place."""
    strides = [matrix.strides(operand) for operand, parameter in parameters if parameter is not None]
    on_rows = any(any(rows) for rows, _, _ in strides)
    on_outer = any(any(outer) for _, outer, _ in strides)
    on_inner = any(inner for _, _, inner in strides)
    if on_inner:
        return "MT" if on_rows else "T"
    return "MJ" if on_outer else "M"


def along_dims(parameter: torch.Tensor | None, x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor | None:
    """A parameter that runs along ``dims`` of x, expanded to x's shape."""
    if parameter is None:
        return None
    strides = [0] * x.ndim
    for d, stride in zip(dims, parameter.stride(), strict=True):
        strides[d] = stride
    return parameter.as_strided(tuple(x.shape), strides)


def spread_vector(vector: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    """A vector over the second dimension of x, expanded to x's shape."""
    return along_dims(vector, x, (1,))


def channels_kept(x: torch.Tensor) -> Ints:
    """Dense strides as x suggests them: channels last where x is, else row-major."""
    if x.ndim in (4, 5):
        last = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
        if x.is_contiguous(memory_format=last) and not x.is_contiguous():
            return dense_strides(tuple(x.shape), (1, *range(x.ndim - 1, 1, -1), 0))
    return contiguous_strides(tuple(x.shape))


def statistics_dtype(
    x: torch.Tensor,
    parameters: Sequence[torch.Tensor | None],
    *,
    wide_on_device: bool,
    any_on_device: bool = False,
) -> torch.dtype:
    """The dtype of mean and rstd: that of the parameters, which may be float32 for a half input; else that of x.

    With ``wide_on_device`` half inputs on a device always have float32 statistics, with ``any_on_device`` parameters of
    both types may meet there.

    Raises:
        TypeError: parameters of another type.
    """
    wide = compute_dtype(x.dtype)
    given = {parameter.dtype for parameter in parameters if parameter is not None}
    mixed = len(given) > 1 and not (x.is_cuda and any_on_device)
    if mixed or not given <= {x.dtype, wide}:
        raise TypeError(f"parameters of {', '.join(sorted(map(str, given)))} do not fit an input of {x.dtype}")
    return wide if x.is_cuda and wide_on_device else given.pop() if given else x.dtype
