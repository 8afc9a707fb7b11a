"""The gradient of a convolution by its weight: a matrix product that sums over all sites of the batch.

``dw_OJ = s_OP @ f_JP^T``: rows ``O`` are the channels of the sites, columns ``J`` the taps times the channels of the
field, and the sum runs over the places ``P`` of all sites. The result is small and the sum is long, so it is split
among programs, which write partial sums in the type of the accumulator; a second launch adds them up in a fixed order.
Compulsory traffic: both sides once.

Suffixes: as above, ``_S`` one entry for each of depth, height and width, ``_D`` one for each merged dimension.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from ..common.indexing import converted, merge_dims, offset_of
from ..common.lanes import store_along_columns
from ..common.launch import (
    INTERPRETED,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    multiprocessors,
    pdl_prologue,
)
from ..common.windows import place_in_box
from ..matmul.matmul import ALONE, GROUP, combine, fewest_splits, multiply_type
from ..matmul.product_tiles import multiply_add, tile_origin
from .convolution_operands import (
    CHANNELS,
    Operand,
    Sides,
    channels_last,
    kernel_sizes,
    operand_of,
    places_side_by_side,
    reach_type,
    side_by_side,
    with_flat_space,
)
from .implicit_gemm import GemmTile, dimensions_of, dot_precision, feeds_tensor_cores, places_of, read_offset
from .sliding import Sliding, all_taps_of, walk_of


@triton.jit
def quotient(p: tl.tensor, factor: tl.tensor, shift: tl.tensor) -> tl.tensor:
    """``p // d`` for p from 0 to ``2**31 - 1`` by a multiplication, with :func:`reciprocal` of d."""
    return (tl.math.umulhi(p.to(tl.uint32), factor.to(tl.uint32)) >> shift).to(p.dtype)


@triton.jit
def places_by_products(
    p: tl.tensor, space: tl.tensor, space_S: tl.tuple, factors: tl.tuple, shifts: tl.tuple, DIMS: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """As :func:`places_of`, without divisions; the compiler does not see that neighbours stay neighbours.

    ``factors``, ``shifts``: of the number of places in an image, the width and the height.
    """
    n = quotient(p, factors[0], shifts[0])
    q = p - n * space
    d, h, w = q * 0, q * 0, q
    if DIMS > 1:
        h = quotient(q, factors[1], shifts[1])
        w = q - h * space_S[2]
    if DIMS > 2:
        d = quotient(h, factors[2], shifts[2])
        h = h - d * space_S[1]
    return n, q, (d[None, :], h[None, :], w[None, :])


@triton.jit
def filter_gradient_kernel(
    dw_ptr: tl.tensor,
    sites_ptr: tl.tensor,
    field_ptr: tl.tensor,
    O: tl.tensor,  # noqa: E741 - A suffix of this file.
    C: tl.tensor,
    P: tl.tensor,
    own_O: tl.tensor,
    own_C: tl.tensor,
    space: tl.tensor,
    space_S: tl.tuple,
    sites_strides_NGC: tl.tuple,
    sites_size_D: tl.tuple,
    sites_strides_D: tl.tuple,
    field_strides_NGC: tl.tuple,
    field_strides_S: tl.tuple,
    field_size_S: tl.tuple,
    dw_strides_OC: tl.tuple,
    dw_strides_S: tl.tuple,
    split_numel: tl.tensor,
    factors: tl.tuple,
    shifts: tl.tuple,
    steps: tl.tensor,
    WALK_S: tl.constexpr,
    KERNEL_S: tl.constexpr,
    DIMS: tl.constexpr,
    INSIDE: tl.constexpr,
    MIXED: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
    INDEX: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_P: tl.constexpr,
) -> None:
    """One tile of one group over the places of one split; columns are channels under one tap, or, if MIXED, several.

    ``factors``, ``shifts``: as for :func:`places_by_products`, or None.
    """
    pdl_prologue()
    TAPS: tl.constexpr = KERNEL_S[0] * KERNEL_S[1] * KERNEL_S[2]
    blocks = tl.cdiv(C, BLOCK_J)
    columns = TAPS * C if MIXED else TAPS * blocks * BLOCK_J
    first_O, first_J = tile_origin(O, columns, GROUP, BLOCK_O, BLOCK_J, INDEX)
    group, split = tl.program_id(1).to(INDEX), tl.program_id(2).to(INDEX)
    o = first_O + tl.arange(0, BLOCK_O)
    j = first_J + tl.arange(0, BLOCK_J)
    if MIXED:
        tap_J, c = j // C, j % C
        tap = tap_J[:, None]
    else:
        tap = first_J // BLOCK_J // blocks
        c = first_J - tap * (blocks * BLOCK_J) + tl.arange(0, BLOCK_J)
        tap_J = j * 0 + tap
    j_S = place_in_box(tap, KERNEL_S)
    _first_S, _count_S, begin_S = all_taps_of((split * 0, split * 0, split * 0), WALK_S)
    in_columns = (c < C) & (tap_J < TAPS)

    sites_ptr_O = sites_ptr + group * sites_strides_NGC[1] + (o * sites_strides_NGC[2])[:, None]
    field_ptr_J = field_ptr + group * field_strides_NGC[1] + (c * field_strides_NGC[2])[:, None]
    dw_OJ = tl.zeros([BLOCK_O, BLOCK_J], ACCUMULATE)
    tl.assume(steps > 0)  # See product_tiles.py.
    for i in range(steps):
        p = (split * steps + i) * BLOCK_P + tl.arange(0, BLOCK_P)
        if factors is None:
            n, q, q_S = places_of(p, space, space_S, DIMS)
        else:
            n, q, q_S = places_by_products(p, space, space_S, factors, shifts, DIMS)
        sites_offset = n * sites_strides_NGC[0] + offset_of(q, sites_size_D, sites_strides_D)
        s_OP = tl.load(sites_ptr_O + sites_offset[None, :], mask=(o < O)[:, None] & (p < P)[None, :], other=0)
        offset, exists = read_offset(q_S, j_S, begin_S, field_size_S, field_strides_S, WALK_S, INSIDE)
        field_ptr_JP = field_ptr_J + (n * field_strides_NGC[0])[None, :] + offset
        f_JP = tl.load(field_ptr_JP, mask=exists & (p < P)[None, :] & in_columns[:, None], other=0)
        dw_OJ = multiply_add(s_OP, tl.trans(f_JP), dw_OJ, MULTIPLY, PRECISION)

    # Of joined groups only the diagonal blocks are anyone's.
    is_own = (o // own_O)[:, None] == (c // own_C)[None, :]
    kd, kh, kw = place_in_box(tap_J, KERNEL_S)
    dw_ptr += split * split_numel + group * O * dw_strides_OC[0]
    dw_ptr_J = dw_ptr + c % own_C * dw_strides_OC[1]
    dw_ptr_J += kd * dw_strides_S[0] + kh * dw_strides_S[1] + kw * dw_strides_S[2]
    mask = is_own & (o < O)[:, None] & in_columns[None, :]
    dw_ptr_OJ = dw_ptr_J[None, :] + (o * dw_strides_OC[0])[:, None]
    store_along_columns(dw_ptr_OJ, converted(dw_OJ, dw_ptr.dtype.element_ty), mask)


def reciprocal(d: int) -> tuple[int, int]:
    """A factor and a shift of 32 bits: ``p // d`` is ``p * factor >> 32 + shift`` for d above 1 and p below ``2**31``.

    With d at most ``2 << shift`` the factor, rounded up by less than 1, adds less than ``1 / d`` to a quotient, which
    is at least that far from the next integer (Granlund and Montgomery, 1994).
    """
    shift = (d - 1).bit_length() - 1
    return -(-(1 << 32 + shift) // d), shift


def weight_gradient(grad_weight: torch.Tensor, field: torch.Tensor, sites: torch.Tensor, rule: Sliding) -> None:
    """Write the gradient by a weight of shape (site channels, field channels / groups, *kernel), which is dense."""
    own = Sides(rule.groups, grad_weight.shape[0] // rule.groups, grad_weight.shape[1])
    kernel_S, P = kernel_sizes(rule.windows), sites.shape[0] * math.prod(sites.shape[2:])
    precision = dot_precision(field.dtype, P)
    on_tensor_cores = feeds_tensor_cores(field.dtype, precision)
    sides = own.joined() if on_tensor_cores else own
    f, s = operand_of(field, sides.groups), operand_of(sites, sides.groups)
    if on_tensor_cores:
        f, s = _field_side_by_side(f, sides.groups, rule), _sites_side_by_side(s, sides.groups)
    taps = math.prod(kernel_S)
    if rule.is_pointwise():
        flat = with_flat_space(f), with_flat_space(s)
        if flat[0].size_S == flat[1].size_S:
            f, s = flat
    mixed = f.channels < CHANNELS
    tile = _tile(sides.sites, f.channels * taps if mixed else f.channels, P, field.dtype, precision)
    tiles_J = triton.cdiv(taps * f.channels, tile.p) if mixed else taps * triton.cdiv(f.channels, tile.p)
    tiles, steps = triton.cdiv(sides.sites, tile.o) * tiles_J, triton.cdiv(P, tile.k)
    target, size = grad_weight, grad_weight.numel()
    fewest = fewest_splits(P, size, field.dtype, precision)
    splits = max(_splits(tiles * sides.groups, steps, field.device), fewest)
    each = max(triton.cdiv(steps, splits), 1)
    stride_O, stride_C, *strides = grad_weight.stride()
    if splits > 1:
        # A tile has neighbouring channels under one tap. So have partial sums, and the second launch transposes them.
        shape = (splits, grad_weight.shape[0], *grad_weight.shape[2:], own.field)
        target = torch.empty(shape, dtype=compute_dtype(field.dtype), device=field.device)
        _, stride_O, *strides, stride_C = target.stride()
    merged = merge_dims(s.size_S, [s.strides_S], (2, 1, 0))
    index, dims = tl.int64 if splits * size >= 1 << 31 else reach_type(f, s), dimensions_of(s.size_S)
    divisors = (math.prod(s.size_S), s.size_S[2], s.size_S[1])[:dims]
    # Neighbouring places need to be seen as such only where they, not channels, are read 16 bytes at a time.
    by_products = index is tl.int32 and s.strides_NGC[2] == f.strides_NGC[2] == 1 and min(divisors) > 1
    reciprocals = tuple(zip(*map(reciprocal, divisors), strict=True)) if by_products else (None, None)
    launch(
        filter_gradient_kernel,
        (tiles, sides.groups, splits),
        field.device,
        target,
        s.tensor,
        f.tensor,
        sides.sites,
        f.channels,
        P,
        own.sites,
        own.field,
        math.prod(s.size_S),
        s.size_S,
        s.strides_NGC,
        merged.shape_D,
        merged.strides_ID[0],
        f.strides_NGC,
        f.strides_S,
        f.size_S,
        (stride_O, stride_C),
        (0,) * (3 - len(strides)) + tuple(strides),
        size,
        *reciprocals,
        loop_bound(each),
        WALK_S=tuple(walk_of(window, to_field=False) for window in rule.windows),
        KERNEL_S=kernel_S,
        DIMS=dims,
        INSIDE=rule.stays_inside(),
        MIXED=mixed,
        ACCUMULATE=compute_type(field.dtype),
        MULTIPLY=multiply_type(field.dtype),
        PRECISION=precision,
        INDEX=index,
        GROUP=GROUP,
        BLOCK_O=tile.o,
        BLOCK_J=tile.p,
        BLOCK_P=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if splits > 1:
        by_taps = grad_weight.view(*grad_weight.shape[:2], taps).mT
        combine(by_taps, target.view(splits, *by_taps.shape), ALONE)


def _sites_side_by_side(sites: Operand, groups: int) -> Operand:
    """The sites' places or channels as 16-byte loads can read them, or a copy where neither can be."""
    return sites if places_side_by_side(sites) or side_by_side(sites) else channels_last(sites, groups)


def _field_side_by_side(field: Operand, groups: int, rule: Sliding) -> Operand:
    """The same of the field, whose places do where windows are no larger."""
    if field.channels < CHANNELS or side_by_side(field):
        return field
    if rule.is_pointwise() and places_side_by_side(field):
        return field
    return channels_last(field, groups)


def _splits(programs: int, steps: int, device: torch.device) -> int:
    """How many programs share a tile: enough for two on each multiprocessor, of at least four steps each."""
    if INTERPRETED:
        return 1
    return max(min(2 * multiprocessors(device) // programs, steps // 4), 1)


def _tile(O: int, J: int, P: int, dtype: torch.dtype, precision: str) -> GemmTile:  # noqa: E741
    """A tile no larger than the result; whatever its size, splits fill the device."""
    if INTERPRETED:
        o, j, p = (max(triton.next_power_of_2(size), 16) for size in (O, J, P))
        return GemmTile(min(o, 64), min(j, 128), min(p, 1024), 4, 1)
    o, j = (min(max(triton.next_power_of_2(size), 16), 128) for size in (O, J))
    if not feeds_tensor_cores(dtype, precision):
        return GemmTile(min(o, 64), min(j, 64), 32 if dtype == torch.float32 else 16, 4, 2)
    return GemmTile(o, j, 64 if dtype != torch.float32 else 32, 8 if o * j >= 16384 else 4, 3)
