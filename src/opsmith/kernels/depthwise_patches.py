"""Depthwise convolutions under small windows: a lane takes several places below each other, whose windows overlap.

Eight places under 3 x 3 taps read 30 positions, each alone 72. All taps of a patch of places are unrolled, and the
compiler, which sees that it loads from the same place twice, loads once. It is instructions that such a convolution
waits for: with patches of eight an H200 executes 60 for each place in float16, with single places 166. The bytes,
``numel * itemsize`` of the field and of the sites, are soon moved.

Against strides, a patch has whole phases: which taps reach which of its places is known to the compiler, too.

Suffixes: ``_S`` one entry for each of depth, height and width; ``_RC`` a tile, whose rows are planes and whose columns
their patches, or, channels-last, rows patches and columns their channels; ``_P`` the places of a patch, ``_K`` taps,
``_L`` the patches that a sum runs over.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .convolution_operands import kernel_sizes, operand_of, reach_type
from .indexing import Ints, converted
from .lanes import load_along_columns, store_along_columns
from .launch import INTERPRETED, INTERPRETED_TILE, compute_dtype, compute_type, launch, loop_bound, multiprocessors
from .matmul import ALONE, combine
from .sliding import Sliding, Walk, walk_of
from .volumes import volume_index_type, volume_of
from .windows import place_in_box

#: Taps times places of a patch that are unrolled at most: 7 x 7 of four places, which compile in about four seconds.
MOST_PRODUCTS = 196
_UNSIGNED = {tl.int32: tl.uint32, tl.int64: tl.uint64}


class Patch(NamedTuple):
    """Neighbouring places in one dimension, a constant of a kernel.

    Place v of patch number g reads position ``g reach + (first + v step + k span) / phases`` under tap k, if that is
    whole: else no site has the place under this tap.
    """

    places: int
    reach: int
    first: int
    step: int
    span: int
    phases: int


def patch_of(walk: Walk, places: int) -> Patch:
    """So many places as a dimension is walked; a multiple of its phases."""
    span = walk.dilation if walk.span > 0 else -walk.dilation
    return Patch(places, places * walk.step // walk.phases, walk.ahead, walk.step, span, walk.phases)


@triton.jit
def patch_position(g: tl.tensor, patches_S: tl.tuple, IS_PLANE: tl.constexpr) -> tuple[tl.tensor, ...]:
    """Which patch of depth, height and width number ``g`` of a volume is."""
    row = g // patches_S[2]
    if IS_PLANE:
        d, h = row * 0, row
    else:
        d, h = row // patches_S[1], row % patches_S[1]
    return d, h, g - row * patches_S[2]


@triton.jit
def tap_offset(K: tl.constexpr, strides_S: tl.tuple, KERNEL_S: tl.constexpr) -> tl.tensor:
    """Where a window's tap K lies."""
    kd, kh, kw = place_in_box(K, KERNEL_S)
    return kd * strides_S[0] + kh * strides_S[1] + kw * strides_S[2]


@triton.jit
def place_offset(
    V: tl.constexpr,
    d: tl.tensor,
    h: tl.tensor,
    w: tl.tensor,
    size_S: tl.tuple,
    strides_S: tl.tuple,
    PATCH_S: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """How far place V lies from the first of patches that begin at d, h and w, and whether it exists."""
    AHEAD_D: tl.constexpr = V // (PATCH_S[1][0] * PATCH_S[2][0])
    AHEAD_H: tl.constexpr = V // PATCH_S[2][0] % PATCH_S[1][0]
    AHEAD_W: tl.constexpr = V % PATCH_S[2][0]
    inside = (d + AHEAD_D < size_S[0]) & (h + AHEAD_H < size_S[1]) & (w + AHEAD_W < size_S[2])
    return AHEAD_D * strides_S[0] + AHEAD_H * strides_S[1] + AHEAD_W * strides_S[2], inside


@triton.jit
def product_added(
    y: tl.tensor,
    factor: tl.tensor,
    x_ptr: tl.tensor,
    mask: tl.tensor,
    begin_S: tl.tuple,
    size_S: tl.tuple,
    strides_S: tl.tuple,
    inside: tl.tensor,
    K: tl.constexpr,
    V: tl.constexpr,
    KERNEL_S: tl.constexpr,
    PATCH_S: tl.constexpr,
    EXACT: tl.constexpr,
    UNSIGNED: tl.constexpr,
) -> tl.tensor:
    """``y`` and the factor times what place V of the patches reads under tap K: 0 if it is not inside, unless EXACT."""
    KD: tl.constexpr = K // (KERNEL_S[1] * KERNEL_S[2])
    KH: tl.constexpr = K // KERNEL_S[2] % KERNEL_S[1]
    KW: tl.constexpr = K % KERNEL_S[2]
    D: tl.constexpr = PATCH_S[0][2] + V // (PATCH_S[1][0] * PATCH_S[2][0]) * PATCH_S[0][3] + KD * PATCH_S[0][4]
    H: tl.constexpr = PATCH_S[1][2] + V // PATCH_S[2][0] % PATCH_S[1][0] * PATCH_S[1][3] + KH * PATCH_S[1][4]
    W: tl.constexpr = PATCH_S[2][2] + V % PATCH_S[2][0] * PATCH_S[2][3] + KW * PATCH_S[2][4]
    if D % PATCH_S[0][5] == 0 and H % PATCH_S[1][5] == 0 and W % PATCH_S[2][5] == 0:
        AHEAD_D: tl.constexpr = D // PATCH_S[0][5]
        AHEAD_H: tl.constexpr = H // PATCH_S[1][5]
        AHEAD_W: tl.constexpr = W // PATCH_S[2][5]
        # One comparison finds what lies beyond either end: an unsigned -1 is a large number.
        d, h = (begin_S[0] + AHEAD_D).to(UNSIGNED), (begin_S[1] + AHEAD_H).to(UNSIGNED)
        w = (begin_S[2] + AHEAD_W).to(UNSIGNED)
        exists = mask & (d < size_S[0]) & (h < size_S[1]) & (w < size_S[2])
        x_ptr += AHEAD_D * strides_S[0] + AHEAD_H * strides_S[1]
        # Of another type than the offset before, or both would be joined to one that differs for each load: where
        # neighbours lie side by side, the load's instruction holds this one.
        x = load_along_columns(x_ptr + tl.cast(AHEAD_W * strides_S[2], tl.int64), exists)
        if not EXACT:
            # Not with the load's mask, or the loads of several places would no longer be one.
            x = tl.where(inside, x, 0)
        y += x.to(y.dtype) * factor.to(y.dtype)
    return y


@triton.jit
def depthwise_patch_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    w_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    bias_stride: tl.tensor,
    C: tl.tensor,
    patches: tl.tensor,
    patches_S: tl.tuple,
    x_strides_NC: tl.tuple,
    x_strides_S: tl.tuple,
    x_size_S: tl.tuple,
    w_stride_C: tl.tensor,
    w_strides_S: tl.tuple,
    out_strides_NC: tl.tuple,
    out_strides_S: tl.tuple,
    out_size_S: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    KERNEL_S: tl.constexpr,
    PATCH_S: tl.constexpr,
    IS_PLANE: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    UNSIGNED: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane computes the places of one patch."""
    row = tl.program_id(0).to(INDEX) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = tl.program_id(1).to(INDEX) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    if CHANNELS_LAST:
        n, g, c = (row // patches)[:, None], (row % patches)[:, None], column[None, :]
    else:
        n, g, c = (row // C)[:, None], column[None, :], (row % C)[:, None]
    d, h, w = patch_position(g, patches_S, IS_PLANE)
    begin_S = (d * PATCH_S[0][1], h * PATCH_S[1][1], w * PATCH_S[2][1])
    x_begin = n * x_strides_NC[0] + c * x_strides_NC[1]
    x_begin += begin_S[0] * x_strides_S[0] + begin_S[1] * x_strides_S[1] + begin_S[2] * x_strides_S[2]
    x_ptr_RC = x_ptr + x_begin.to(tl.int64)
    # A channel beyond C reads the last one's weight, and is not written.
    inside_c = tl.minimum(c, C - 1)
    w_ptr_RC = w_ptr + inside_c * w_stride_C
    start = tl.zeros([BLOCK_R, BLOCK_C], COMPUTE)
    if bias_ptr is not None:
        start += tl.load(bias_ptr + inside_c * bias_stride).to(COMPUTE)
    TAPS: tl.constexpr = KERNEL_S[0] * KERNEL_S[1] * KERNEL_S[2]
    PLACES: tl.constexpr = PATCH_S[0][0] * PATCH_S[1][0] * PATCH_S[2][0]
    # All sums before the first store, behind which nothing counts as loaded.
    y_P = ()
    for v in tl.static_range(PLACES):
        y_RC = start
        for k in tl.static_range(TAPS):
            factor = tl.load(w_ptr_RC + tap_offset(k, w_strides_S, KERNEL_S))
            y_RC = product_added(
                y_RC,
                factor,
                x_ptr_RC,
                mask,
                begin_S,
                x_size_S,
                x_strides_S,
                mask,
                k,
                v,
                KERNEL_S,
                PATCH_S,
                EXACT=True,
                UNSIGNED=UNSIGNED,
            )
        y_P += (y_RC,)  # type: ignore[assignment]

    d, h, w = d * PATCH_S[0][0], h * PATCH_S[1][0], w * PATCH_S[2][0]
    out_ptr_RC = out_ptr + (n * out_strides_NC[0] + c * out_strides_NC[1])
    out_ptr_RC += d * out_strides_S[0] + h * out_strides_S[1] + w * out_strides_S[2]
    for v in tl.static_range(PLACES):
        offset, inside = place_offset(v, d, h, w, out_size_S, out_strides_S, PATCH_S)
        store_along_columns(out_ptr_RC + offset, converted(y_P[v], out_ptr.dtype.element_ty), mask & inside)


def patches_fit(rule: Sliding, *, to_field: bool) -> bool:
    """Whether windows and strides are small enough for patches."""
    walks = [walk_of(window, to_field=to_field) for window in rule.windows]
    return math.prod(walk.kernel for walk in walks) * max(math.prod(walk.phases for walk in walks), 4) <= MOST_PRODUCTS


def _patches(rule: Sliding, size_S: Ints, lanes: int, *, to_field: bool) -> tuple[Patch, ...]:
    """Patches of up to eight places below each other, as many as read the fewest rows; or one for each phase at least.

    Args:
        rule: the windows.
        size_S: of the volume that is cut into patches.
        lanes: how many elements are computed for each multiprocessor.
        to_field: whether the field is cut, and not the sites.
    """
    walks = [walk_of(window, to_field=to_field) for window in rule.windows]
    phases = math.prod(walk.phases for walk in walks)
    # A large window's taps fill the registers; few patches leave the device waiting for each other.
    most = 8 if math.prod(walk.kernel for walk in walks) <= 9 and lanes >= 8 * 512 else 4
    own, overlap = walks[1].phases, walks[1].kernel - 1
    taller = range(own, max(most * own // phases, own) + 1, own)
    rows = min(taller, key=lambda places: (triton.cdiv(size_S[1], places) * (places + overlap), -places))
    return tuple(patch_of(walk, rows if dim == 1 else walk.phases) for dim, walk in enumerate(walks))


def convolve_patches(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rule: Sliding,
    *,
    to_field: bool,
) -> None:
    """As :func:`gathered_products.convolve`, where groups have one channel on either side and patches fit."""
    spatial = out.ndim - 2
    y, source = volume_of(out, spatial), volume_of(x, spatial)
    patch_S = _patches(rule, y.spatial, out.numel() // multiprocessors(out.device), to_field=to_field)
    patches_S = tuple(triton.cdiv(size, patch.places) for size, patch in zip(y.spatial, patch_S, strict=True))
    last = out.stride(1) == 1 and math.prod(y.spatial) > 1 and y.shape_NCDHW[1] > 1
    N, C, patches = *y.shape_NCDHW[:2], math.prod(patches_S)
    rows, columns = (N * patches, C) if last else (N * C, patches)
    block_r, block_c = _sides(rows, columns, channels_last=last)
    stride_C, _, *strides = weight.stride()
    index = volume_index_type(y, source)
    launch(
        depthwise_patch_kernel,
        (triton.cdiv(rows, block_r), triton.cdiv(columns, block_c)),
        out.device,
        out,
        x,
        weight,
        bias,
        0 if bias is None else bias.stride(0),
        C,
        patches,
        patches_S,
        source.strides_NCDHW[:2],
        source.strides_NCDHW[2:],
        source.spatial,
        stride_C,
        (0,) * (3 - spatial) + tuple(strides),
        y.strides_NCDHW[:2],
        y.strides_NCDHW[2:],
        y.spatial,
        rows,
        columns,
        KERNEL_S=kernel_sizes(rule.windows),
        PATCH_S=patch_S,
        IS_PLANE=y.spatial[0] == 1,
        COMPUTE=compute_type(out.dtype),
        CHANNELS_LAST=last,
        INDEX=index,
        UNSIGNED=_UNSIGNED[index],
        BLOCK_R=block_r,
        BLOCK_C=block_c,
    )


def _sides(rows: int, columns: int, *, channels_last: bool) -> tuple[int, int]:
    """Rows and columns of a tile of a patch, or of four channels of one, for each of 128 threads.

    Few of them lie beyond the last column.
    """
    if INTERPRETED:
        block_c = min(triton.next_power_of_2(columns), 4096)
        return min(triton.next_power_of_2(rows), INTERPRETED_TILE // block_c), block_c
    elements = 512 if channels_last else 128
    block_c = min((128, 64, 32, 16), key=lambda block: triton.cdiv(columns, block) * (block + 16))
    return min(triton.next_power_of_2(rows), elements // block_c), block_c


@triton.jit
def depthwise_patch_gradient_kernel(
    dw_ptr: tl.tensor,
    sites_ptr: tl.tensor,
    field_ptr: tl.tensor,
    C: tl.tensor,
    L: tl.tensor,
    patches: tl.tensor,
    patches_S: tl.tuple,
    sites_strides_NC: tl.tuple,
    sites_strides_S: tl.tuple,
    sites_size_S: tl.tuple,
    field_strides_NC: tl.tuple,
    field_strides_S: tl.tuple,
    field_size_S: tl.tuple,
    dw_stride_C: tl.tensor,
    dw_strides_S: tl.tuple,
    split_numel: tl.tensor,
    steps: tl.tensor,
    KERNEL_S: tl.constexpr,
    PATCH_S: tl.constexpr,
    IS_PLANE: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    UNSIGNED: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """All taps of some channels, over the patches of one split: each lane adds up its own, and all lanes at the end."""
    TAPS: tl.constexpr = KERNEL_S[0] * KERNEL_S[1] * KERNEL_S[2]
    PLACES: tl.constexpr = PATCH_S[0][0] * PATCH_S[1][0] * PATCH_S[2][0]
    split = tl.program_id(1).to(INDEX)
    c = tl.program_id(0).to(INDEX) * BLOCK_C + tl.arange(0, BLOCK_C)
    sites_ptr_C = sites_ptr + (c * sites_strides_NC[1])[None, :]
    field_ptr_C = field_ptr + (c * field_strides_NC[1])[None, :]
    dw_K = ()
    for _k in tl.static_range(TAPS):
        dw_K += (tl.zeros([BLOCK_L, BLOCK_C], COMPUTE),)  # type: ignore[assignment]
    for i in range(steps):
        lane = ((split * steps + i) * BLOCK_L + tl.arange(0, BLOCK_L))[:, None]
        mask = (lane < L) & (c < C)[None, :]
        n, g = lane // patches, lane % patches
        d, h, w = patch_position(g, patches_S, IS_PLANE)
        begin_S = (d * PATCH_S[0][1], h * PATCH_S[1][1], w * PATCH_S[2][1])
        field_begin = n * field_strides_NC[0] + begin_S[0] * field_strides_S[0]
        field_begin += begin_S[1] * field_strides_S[1] + begin_S[2] * field_strides_S[2]
        field_ptr_LC = field_ptr_C + field_begin.to(tl.int64)
        d, h, w = d * PATCH_S[0][0], h * PATCH_S[1][0], w * PATCH_S[2][0]
        sites_ptr_LC = sites_ptr_C + n * sites_strides_NC[0]
        sites_ptr_LC += d * sites_strides_S[0] + h * sites_strides_S[1] + w * sites_strides_S[2]
        site_P = ()
        inside_P = ()
        for v in tl.static_range(PLACES):
            offset, inside = place_offset(v, d, h, w, sites_size_S, sites_strides_S, PATCH_S)
            site_P += (load_along_columns(sites_ptr_LC + offset, mask & inside),)  # type: ignore[assignment]
            inside_P += (inside,)  # type: ignore[assignment]
        grown_K = ()
        for k in tl.static_range(TAPS):
            dw_LC = dw_K[k]  # type: ignore[var-annotated]
            for v in tl.static_range(PLACES):
                dw_LC = product_added(
                    dw_LC,
                    site_P[v],
                    field_ptr_LC,
                    mask,
                    begin_S,
                    field_size_S,
                    field_strides_S,
                    inside_P[v],
                    k,
                    v,
                    KERNEL_S,
                    PATCH_S,
                    EXACT=EXACT,
                    UNSIGNED=UNSIGNED,
                )
            grown_K += (dw_LC,)  # type: ignore[assignment]
        dw_K = grown_K
    dw_ptr_C = dw_ptr + split * split_numel + c * dw_stride_C
    for k in tl.static_range(TAPS):
        dw_C = converted(tl.sum(dw_K[k], axis=0), dw_ptr.dtype.element_ty)
        tl.store(dw_ptr_C + tap_offset(k, dw_strides_S, KERNEL_S), dw_C, mask=c < C)


def patch_weight_gradient(grad_weight: torch.Tensor, field: torch.Tensor, sites: torch.Tensor, rule: Sliding) -> None:
    """As :func:`filter_gradients.weight_gradient`, where groups have one channel on either side and patches fit."""
    spatial, C = field.ndim - 2, field.shape[1]
    f, s = volume_of(field, spatial), volume_of(sites, spatial)
    patch_S = _patches(rule, s.spatial, sites.numel() // multiprocessors(field.device), to_field=False)
    patches_S = tuple(triton.cdiv(size, patch.places) for size, patch in zip(s.spatial, patch_S, strict=True))
    kernel_S = kernel_sizes(rule.windows)
    L = sites.shape[0] * math.prod(patches_S)
    block_l, block_c = _blocks(L, C, math.prod(kernel_S), channels_last=field.stride(1) == 1)
    programs, steps = triton.cdiv(C, block_c), triton.cdiv(L, block_l)
    splits = 1 if INTERPRETED else max(min(8 * multiprocessors(field.device) // programs, steps // 2, 256), 1)
    each = triton.cdiv(steps, splits)
    target, size = grad_weight, grad_weight.numel()
    if splits > 1:
        target = torch.empty((splits, size), dtype=compute_dtype(field.dtype), device=field.device)
    stride_C, _, *strides = grad_weight.stride()
    index = reach_type(operand_of(field, C), operand_of(sites, C))
    launch(
        depthwise_patch_gradient_kernel,
        (programs, splits),
        field.device,
        target,
        sites,
        field,
        C,
        L,
        math.prod(patches_S),
        patches_S,
        s.strides_NCDHW[:2],
        s.strides_NCDHW[2:],
        s.spatial,
        f.strides_NCDHW[:2],
        f.strides_NCDHW[2:],
        f.spatial,
        stride_C,
        (0,) * (3 - spatial) + tuple(strides),
        size,
        loop_bound(each),
        KERNEL_S=kernel_S,
        PATCH_S=patch_S,
        IS_PLANE=s.spatial[0] == 1,
        EXACT=patch_S[1].places * patches_S[1] == s.spatial[1],
        COMPUTE=compute_type(field.dtype),
        INDEX=index,
        UNSIGNED=_UNSIGNED[index],
        BLOCK_L=block_l,
        BLOCK_C=block_c,
    )
    if splits > 1:
        combine(grad_weight.as_strided((1, 1, size), (size, size, 1)), target, ALONE)


def _blocks(L: int, C: int, taps: int, *, channels_last: bool) -> tuple[int, int]:
    """Patches and channels of a tile: a thread has a sum for each tap of a channel, or of four side by side."""
    lanes = triton.next_power_of_2(max(L, 1))
    if INTERPRETED:
        block_c = min(triton.next_power_of_2(C), 64)
        return min(lanes, INTERPRETED_TILE // 16 // block_c), block_c
    if not channels_last:
        return min(lanes, 128), 1
    block_c = min(triton.next_power_of_2(C), 64)
    return min(lanes, (512 if taps <= 9 else 128) // block_c), block_c
