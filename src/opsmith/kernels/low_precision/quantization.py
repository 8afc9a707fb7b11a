"""Quantisation of activations and gradients: a scale for so many neighbours, and their quotients in a narrow format.

================  ===========================  =====================  =======================================
form              scale of a group             elements               groups
================  ===========================  =====================  =======================================
float scales      ``max(amax, 1e-12) / 448``   E4M3 of ``x / scale``  a row (a token), or 128 of a row
microscaled       ``2^ceil(log2(amax / m))``   E4M3 or E2M1           32 of a row (OCP Microscaling 1.0)
NVFP4             E4M3, and one for the whole  E2M1                   16 of a row
delayed           of an earlier step           E5M2, clamped          none: the largest magnitude comes back
================  ===========================  =====================  =======================================

A tile ``x_RC`` has R groups of C elements and is read once: largest magnitude, scale and quotients are made in
registers. So the traffic is ``itemsize + 1`` bytes an element (half a byte is written for E2M1) and the scales. NVFP4
reads its input twice, because the scale of the whole comes before all others; groups longer than :data:`MOST_COLUMNS`
are read twice too, the second time out of the cache.

Largest magnitudes of the whole are found without atomics: each program writes its own, and who needs the whole takes
the largest of a few hundred of them. Magnitudes are compared as integers: so NaN is the largest, as eager has it.

Suffixes: ``_R`` groups of a tile, ``_C`` elements of a group, ``_P`` parts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import converted, widened
from ..common.launch import INTERPRETED, INTERPRETED_TILE, launch, loop_bound, multiprocessors, pdl_prologue
from .formats import (
    E2M1_LARGEST,
    E4M3,
    E4M3_LARGEST,
    E5M2,
    E8M0,
    PACKED,
    SOURCES,
    as_bytes,
    as_float8,
    as_number,
    block_exponent,
    from_float8,
    magnitude_bits,
    over_number,
    packed,
    quotients,
    require_low,
    scale_at,
    scale_of,
    to_float4,
    to_float8,
)

#: Elements of a tile: 32 for each of 128 threads, four 16-byte reads of a half type.
TILE = 4096
#: Elements of a group that are held in registers: 64 for each of 256 threads.
MOST_COLUMNS = 16384
#: Programs that look for the largest of a tensor, for each multiprocessor: so many of 128 threads keep memory busy.
SEEKERS = 4

_E4M3, _E2M1 = tl.constexpr(E4M3_LARGEST), tl.constexpr(E2M1_LARGEST)


class Groups(NamedTuple):
    """Groups of neighbours along the rows of a matrix, and how they are cut into tiles.

    Attributes:
        total: how many there are.
        per_row: groups of a row.
        width: elements of a group.
        rows: groups of a tile.
        columns: elements of a group at a time, a power of two.
        warps: of the program that owns a tile.
    """

    total: int
    per_row: int
    width: int
    rows: int
    columns: int
    warps: int

    @property
    def tiles(self) -> int:
        """How many tiles there are."""
        return int(triton.cdiv(self.total, self.rows))


# ---------------------------------------------------------------- tiles


@triton.jit
def load_groups(
    x_ptr: tl.tensor,
    tile: tl.tensor,
    start: tl.tensor,
    groups: tl.tensor,
    per_row: tl.tensor,
    width: tl.tensor,
    strides: tl.tuple,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> tl.tensor:
    """``x_RC`` in float32: COLUMNS elements, from ``start`` on, of the groups of a tile; 0 beyond their ends."""
    group = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = start + tl.arange(0, COLUMNS)
    first_R = (group // per_row) * strides[0] + (group % per_row) * width * strides[1]
    inside_RC = (group < groups)[:, None] & (column < width)[None, :]
    x_RC = tl.load(x_ptr + first_R[:, None] + column[None, :] * strides[1], mask=inside_RC, other=0.0)
    return widened(x_RC).to(tl.float32)


@triton.jit
def gated(gate: tl.tensor, up: tl.tensor) -> tl.tensor:
    """``silu(gate) * up``."""
    return tl.div_rn(gate, 1.0 + tl.exp(-gate)) * up


@triton.jit
def load_source(
    x_ptr: tl.tensor,
    tile: tl.tensor,
    start: tl.tensor,
    groups: tl.tensor,
    per_row: tl.tensor,
    width: tl.tensor,
    strides: tl.tuple,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> tl.tensor:
    """As :func:`load_groups`; if GATED, of the product of a gate and what lies as many columns on as the gate has."""
    x_RC = load_groups(x_ptr, tile, start, groups, per_row, width, strides, ROWS, COLUMNS)
    if GATED:
        up_ptr = x_ptr + tl.cast(per_row * width, tl.int64) * strides[1]
        x_RC = gated(x_RC, load_groups(up_ptr, tile, start, groups, per_row, width, strides, ROWS, COLUMNS))
    return x_RC


@triton.jit
def places(
    tile: tl.tensor,
    start: tl.tensor,
    groups: tl.tensor,
    width: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Where the elements of a tile lie in a contiguous tensor of all groups, and which of them there are."""
    group = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = start + tl.arange(0, COLUMNS)
    return (group * width)[:, None] + column[None, :], (group < groups)[:, None] & (column < width)[None, :]


# ---------------------------------------------------------------- float scales


@triton.jit
def quantize_groups_kernel(
    out_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    x_ptr: tl.tensor,
    groups: tl.tensor,
    per_row: tl.tensor,
    width: tl.tensor,
    strides: tl.tuple,
    steps: tl.tensor,
    GATED: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """E4M3 of ``x / scale`` and the scales of ROWS groups; WHOLE: a group is one step, which stays in registers."""
    pdl_prologue()
    tile = tl.program_id(0)
    group = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    if WHOLE:
        x_RC = load_source(x_ptr, tile, 0, groups, per_row, width, strides, GATED, ROWS, COLUMNS)
        scale_R = scale_of(tl.max(magnitude_bits(x_RC), axis=1), _E4M3)
        place_RC, inside_RC = places(tile, 0, groups, width, ROWS, COLUMNS)
        tl.store(out_ptr + place_RC, to_float8(quotients(x_RC, scale_R[:, None]), "E4M3"), mask=inside_RC)
    else:
        bits_RC = tl.zeros((ROWS, COLUMNS), tl.int32)
        for step in range(steps):
            start = step * COLUMNS
            x_RC = load_source(x_ptr, tile, start, groups, per_row, width, strides, GATED, ROWS, COLUMNS)
            bits_RC = tl.maximum(bits_RC, magnitude_bits(x_RC))
        scale_R = scale_of(tl.max(bits_RC, axis=1), _E4M3)
        for step in range(steps):
            start = step * COLUMNS
            x_RC = load_source(x_ptr, tile, start, groups, per_row, width, strides, GATED, ROWS, COLUMNS)
            place_RC, inside_RC = places(tile, start, groups, width, ROWS, COLUMNS)
            tl.store(out_ptr + place_RC, to_float8(quotients(x_RC, scale_R[:, None]), "E4M3"), mask=inside_RC)
    tl.store(scale_ptr + group, scale_R, mask=group < groups)


# ---------------------------------------------------------------- scales that are powers of two


@triton.jit
def microscale_kernel(
    out_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    x_ptr: tl.tensor,
    groups: tl.tensor,
    per_row: tl.tensor,
    strides: tl.tuple,
    PACKS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Groups of COLUMNS elements and the E8M0 codes of their scales; PACKS: to E2M1, two a byte, instead of E4M3."""
    pdl_prologue()
    tile = tl.program_id(0)
    group = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_RC = load_groups(x_ptr, tile, 0, groups, per_row, COLUMNS, strides, ROWS, COLUMNS)
    code_R, factor_R = block_exponent(tl.max(magnitude_bits(x_RC), axis=1), _E2M1 if PACKS else _E4M3)
    x_RC *= factor_R[:, None]
    if PACKS:
        place_RC, inside_RC = places(tile, 0, groups, COLUMNS // 2, ROWS, COLUMNS // 2)
        tl.store(out_ptr + place_RC, packed(to_float4(x_RC)), mask=inside_RC)
    else:
        place_RC, inside_RC = places(tile, 0, groups, COLUMNS, ROWS, COLUMNS)
        tl.store(out_ptr + place_RC, to_float8(x_RC, "E4M3"), mask=inside_RC)
    tl.store(scale_ptr + group, code_R, mask=group < groups)


# ---------------------------------------------------------------- a scale for the whole


@triton.jit
def largest_parts_kernel(
    part_ptr: tl.tensor,
    x_ptr: tl.tensor,
    groups: tl.tensor,
    per_row: tl.tensor,
    width: tl.tensor,
    strides: tl.tuple,
    steps: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """The bits of the largest magnitude of tiles ``program, program + programs ..``."""
    pdl_prologue()
    bits_RC = tl.zeros((ROWS, COLUMNS), tl.int32)
    for step in range(steps):
        tile = tl.program_id(0) + step * tl.num_programs(0)
        x_RC = load_groups(x_ptr, tile, 0, groups, per_row, width, strides, ROWS, COLUMNS)
        bits_RC = tl.maximum(bits_RC, magnitude_bits(x_RC))
    tl.store(part_ptr + tl.program_id(0), tl.max(tl.max(bits_RC, axis=1), axis=0))


@triton.jit
def largest_of_parts(part_ptr: tl.tensor, parts: tl.tensor, PARTS: tl.constexpr) -> tl.tensor:
    """The largest of the numbers whose bits are in ``parts`` places."""
    p = tl.arange(0, PARTS)
    return as_number(tl.max(tl.load(part_ptr + p, mask=p < parts, other=0), axis=0))


@triton.jit
def nvfp4_kernel(
    out_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    whole_ptr: tl.tensor,
    part_ptr: tl.tensor,
    x_ptr: tl.tensor,
    parts: tl.tensor,
    groups: tl.tensor,
    per_row: tl.tensor,
    strides: tl.tuple,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """E2M1 of ``x / (scale * whole)``, two a byte, with scales in E4M3; the first program writes the whole's."""
    pdl_prologue()
    tile = tl.program_id(0)
    group = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    whole = over_number(tl.full((1,), largest_of_parts(part_ptr, parts, PARTS), tl.float32), _E2M1 * _E4M3)
    x_RC = load_groups(x_ptr, tile, 0, groups, per_row, COLUMNS, strides, ROWS, COLUMNS)
    largest_R = as_number(tl.max(magnitude_bits(x_RC), axis=1))
    code_R = to_float8(tl.div_rn(largest_R, tl.broadcast_to(whole * _E2M1, [ROWS])), "E4M3")
    step_R = from_float8(as_float8(code_R, "E4M3")) * whole
    place_RC, inside_RC = places(tile, 0, groups, COLUMNS // 2, ROWS, COLUMNS // 2)
    tl.store(out_ptr + place_RC, packed(to_float4(tl.div_rn(x_RC, step_R[:, None]))), mask=inside_RC)
    tl.store(scale_ptr + group, code_R, mask=group < groups)
    tl.store(whole_ptr + tl.arange(0, 1), whole, mask=tl.arange(0, 1) == tile)


# ---------------------------------------------------------------- a scale from earlier steps


@triton.jit
def delayed_kernel(
    out_ptr: tl.tensor,
    part_ptr: tl.tensor,
    x_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    groups: tl.tensor,
    per_row: tl.tensor,
    width: tl.tensor,
    strides: tl.tuple,
    steps: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """E5M2 of ``x * scale``, and as :func:`largest_parts_kernel` what is largest of x."""
    pdl_prologue()
    scale = scale_at(scale_ptr)
    bits_RC = tl.zeros((ROWS, COLUMNS), tl.int32)
    for step in range(steps):
        tile = tl.program_id(0) + step * tl.num_programs(0)
        x_RC = load_groups(x_ptr, tile, 0, groups, per_row, width, strides, ROWS, COLUMNS)
        bits_RC = tl.maximum(bits_RC, magnitude_bits(x_RC))
        place_RC, inside_RC = places(tile, 0, groups, width, ROWS, COLUMNS)
        # What is out of range becomes the largest number, and NaN stays, without being clamped: see to_float8.
        tl.store(out_ptr + place_RC, to_float8(x_RC * scale, "E5M2"), mask=inside_RC)
    tl.store(part_ptr + tl.program_id(0), tl.max(tl.max(bits_RC, axis=1), axis=0))


@triton.jit
def largest_kernel(out_ptr: tl.tensor, part_ptr: tl.tensor, parts: tl.tensor, PARTS: tl.constexpr) -> None:
    """The largest of all parts, in the type of the output."""
    pdl_prologue()
    tl.store(out_ptr, converted(largest_of_parts(part_ptr, parts, PARTS), out_ptr.dtype.element_ty))


# ---------------------------------------------------------------- host


def quantize_groups(x: torch.Tensor, width: int, *, gated: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 with a float32 scale for each ``width`` neighbours of a row.

    Args:
        x: of shape (M, N); if ``gated``, the gates and then as many factors of them.
        width: a divisor of N, or of half of it.

    Returns:
        The elements, (M, N) or (M, N / 2), and the scales, (M, N / width).

    Raises:
        NotImplementedError: another type, number of dimensions or device.
        ValueError: groups that do not fit.
    """
    require_low(x, dtypes=SOURCES)
    rows, columns = _sizes(x)
    columns = columns // 2 if gated else columns
    groups = groups_of(rows, columns, width)
    out = torch.empty((rows, columns), dtype=E4M3, device=x.device)
    scale = torch.empty((rows, groups.per_row), dtype=torch.float32, device=x.device)
    if groups.total:
        launch(
            quantize_groups_kernel,
            (groups.tiles,),
            x.device,
            as_bytes(out),
            scale,
            x,
            groups.total,
            groups.per_row,
            width,
            x.stride(),
            loop_bound(triton.cdiv(width, groups.columns)),
            GATED=gated,
            WHOLE=groups.columns >= width,
            ROWS=groups.rows,
            COLUMNS=groups.columns,
            num_warps=groups.warps,
        )
    return out, scale


def microscale(x: torch.Tensor, width: int, *, packs: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """MXFP8, or, if it ``packs``, MXFP4: blocks of ``width`` neighbours, a power of two, and their E8M0 scales.

    Raises:
        NotImplementedError: another type, number of dimensions, device or width.
        ValueError: blocks that do not fit.
    """
    require_low(x, dtypes=SOURCES)
    rows, columns = _sizes(x)
    groups = _blocks_of(rows, columns, width)
    shape, dtype = ((rows, columns // 2), PACKED) if packs else ((rows, columns), E4M3)
    out = torch.empty(shape, dtype=dtype, device=x.device)
    scale = torch.empty((rows, groups.per_row), dtype=E8M0, device=x.device)
    if groups.total:
        launch(
            microscale_kernel,
            (groups.tiles,),
            x.device,
            as_bytes(out),
            as_bytes(scale),
            x,
            groups.total,
            groups.per_row,
            x.stride(),
            PACKS=packs,
            ROWS=groups.rows,
            COLUMNS=width,
            num_warps=groups.warps,
        )
    return out, scale


def nvfp4(x: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """NVFP4: packed elements, an E4M3 scale for each ``width`` neighbours, and the float32 scale of the whole.

    Raises:
        NotImplementedError: another type, number of dimensions, device or width.
        ValueError: blocks that do not fit, or an empty tensor, which has no largest element.
    """
    require_low(x, dtypes=SOURCES)
    rows, columns = _sizes(x)
    groups = _blocks_of(rows, columns, width)
    if not groups.total:
        raise ValueError("an empty tensor has no largest element")
    out = torch.empty((rows, columns // 2), dtype=PACKED, device=x.device)
    scale = torch.empty((rows, groups.per_row), dtype=E4M3, device=x.device)
    whole = torch.empty((), dtype=torch.float32, device=x.device)
    parts = torch.empty(seekers(groups, x.device), dtype=torch.int32, device=x.device)
    launch(
        largest_parts_kernel,
        (len(parts),),
        x.device,
        parts,
        x,
        groups.total,
        groups.per_row,
        width,
        x.stride(),
        loop_bound(triton.cdiv(groups.tiles, len(parts))),
        ROWS=groups.rows,
        COLUMNS=width,
        num_warps=groups.warps,
    )
    launch(
        nvfp4_kernel,
        (groups.tiles,),
        x.device,
        as_bytes(out),
        as_bytes(scale),
        whole,
        parts,
        x,
        len(parts),
        groups.total,
        groups.per_row,
        x.stride(),
        PARTS=triton.next_power_of_2(len(parts)),
        ROWS=groups.rows,
        COLUMNS=width,
        num_warps=groups.warps,
    )
    return out, scale, whole


def quantize_delayed(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E5M2 of ``x * scale``, what is out of range as the largest number, and the largest magnitude of x.

    Args:
        x: of shape (M, N).
        scale: one number.

    Raises:
        NotImplementedError: another type, number of dimensions or device.
        ValueError: an empty tensor, which has no largest element, or several scales.
    """
    require_low(x, scale, dtypes=SOURCES)
    rows, columns = _sizes(x)
    if not x.numel() or scale.numel() != 1:
        raise ValueError(f"{list(x.shape)} elements are not quantised with {scale.numel()} scales")
    groups = _slices_of(rows, columns)
    out = torch.empty((rows, columns), dtype=E5M2, device=x.device)
    largest = torch.empty((), dtype=x.dtype, device=x.device)
    parts = torch.empty(seekers(groups, x.device), dtype=torch.int32, device=x.device)
    launch(
        delayed_kernel,
        (len(parts),),
        x.device,
        as_bytes(out),
        parts,
        x,
        scale,
        groups.total,
        groups.per_row,
        groups.width,
        x.stride(),
        loop_bound(triton.cdiv(groups.tiles, len(parts))),
        ROWS=groups.rows,
        COLUMNS=groups.columns,
        num_warps=groups.warps,
    )
    launch(
        largest_kernel,
        (1,),
        x.device,
        largest,
        parts,
        len(parts),
        PARTS=triton.next_power_of_2(len(parts)),
        num_warps=4,
    )
    return out, largest


def groups_of(rows: int, columns: int, width: int) -> Groups:
    """Groups of ``width`` neighbours of each row, in tiles of :data:`TILE` elements, or of one group.

    Raises:
        ValueError: the groups are not those of a row.
    """
    if width < 1 or columns % width:
        raise ValueError(f"rows of {columns} elements have no groups of {width}")
    tile, most = (INTERPRETED_TILE, INTERPRETED_TILE) if INTERPRETED else (TILE, MOST_COLUMNS)
    block = min(triton.next_power_of_2(width), most)
    per_row = columns // width
    fit = max(1, tile // block)
    tall = min(fit, triton.next_power_of_2(max(1, rows * per_row)))
    # 32 elements a thread, and twice as many of the longest groups: more would not fit into registers.
    return Groups(rows * per_row, per_row, width, tall, block, max(1, min(8, block * tall // 1024)))


def seekers(groups: Groups, device: torch.device) -> int:
    """How many programs look for the largest element of a tensor."""
    return max(1, min(groups.tiles, SEEKERS * multiprocessors(device)))


def _blocks_of(rows: int, columns: int, width: int) -> Groups:
    if width < 2 or width & (width - 1) or width > TILE:
        raise NotImplementedError(f"blocks of {width} elements are not served")
    return groups_of(rows, columns, width)


def _slices_of(rows: int, columns: int) -> Groups:
    """Rows in equal parts that a tile holds, of which a scale is no concern.

    Raises:
        NotImplementedError: rows so long that have none.
    """
    width, most = columns, INTERPRETED_TILE if INTERPRETED else TILE
    while width > most and width % 2 == 0:
        width //= 2
    groups = groups_of(rows, columns, width)
    if groups.columns < width:
        raise NotImplementedError(f"rows of {columns} elements are not served")
    return groups


def _sizes(x: torch.Tensor) -> tuple[int, int]:
    if x.ndim != 2:
        raise NotImplementedError(f"tensors of {x.ndim} dimensions are not quantised")
    return x.shape[0], x.shape[1]


# ---------------------------------------------------------------- problems


class TokenQuantize(torch.nn.Module):
    """Problem 1: a scale for each token."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Elements and scales of ``x[tokens, width]``."""
        return quantize_groups(x, x.shape[-1])


class GroupQuantize(torch.nn.Module):
    """Problem 2: a scale for each ``group`` neighbours of a token."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Elements and scales of ``x[tokens, width]``."""
        return quantize_groups(x, self.group)


class GradientQuantize(torch.nn.Module):
    """Problem 3: delayed scaling."""

    def forward(self, gradient: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Elements of ``gradient[M, N]``, and its largest magnitude."""
        return quantize_delayed(gradient, scale)


class MXFP8Quantize(GroupQuantize):
    """Problem 9."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Elements and scales of ``x[M, N]``."""
        return microscale(x, self.group, packs=False)


class MXFP4Quantize(GroupQuantize):
    """Problem 11."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Packed elements and scales of ``x[M, N]``."""
        return microscale(x, self.group, packs=True)


class NVFP4Quantize(torch.nn.Module):
    """Problem 13."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Packed elements, scales of blocks and of the whole of ``x[M, N]``."""
        return nvfp4(x, self.block)


class SwiGLUQuantize(GroupQuantize):
    """Problem 16: a gated activation, quantised."""

    def forward(self, gate_and_up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Elements and scales of ``silu(gate) * up``, which ``gate_and_up[tokens, 2 * width]`` holds."""
        return quantize_groups(gate_and_up, self.group, gated=True)
