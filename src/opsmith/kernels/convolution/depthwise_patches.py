"""Depthwise convolutions under small windows: a lane takes a patch of neighbouring places, whose windows overlap.

Four rows of four places under 3 x 3 taps read 36 positions, each alone 144. All taps of a patch of places are unrolled,
and the compiler, which sees that it loads from the same place twice, loads once. It is instructions that such a
convolution waits for: in float16 an H200 executes 166 for a place alone, 57 in a patch of eight below each other and
31 in one of four by four. The bytes, ``numel * itemsize`` of the field and of the sites, are soon moved.

Neighbours of a row are loaded and stored as words of up to 8 bytes (packed_elements.py), where rows consist of those.
Channels-last, a lane has neighbouring channels instead, and a patch is places along the longer side of the window.

A window of more than twelve taps is walked part by part, so that patches need not be small to be unrolled.

Against strides, a patch has whole phases: which taps reach which of its places is known to the compiler, too.

Suffixes: ``_S`` one entry for each of depth, height and width; ``_RC`` a tile, whose rows are planes and whose columns
their patches, or, channels-last, rows patches and columns their channels; ``_P`` the places of a patch, ``_K`` taps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Ints
from ..common.lanes import load_along_columns
from ..common.launch import INTERPRETED, INTERPRETED_TILE, compute_type, launch, multiprocessors, pdl_prologue
from ..common.volumes import empty_volume, tile_of, volume_index_type, volume_of
from ..common.windows import place_in_box
from ..copies.rearrangements import copy_into
from .convolution_operands import kernel_sizes
from .packed_elements import load_part, longest_word, store_word
from .sliding import Sliding, Walk, walk_of

#: Taps times places of a patch that are unrolled at most: 7 x 7 of four places, which compile in about four seconds.
MOST_PRODUCTS = 200
#: Taps that are unrolled together, unless one row has more.
MOST_TAPS = 12
#: Lanes that a multiprocessor needs before patches grow: fewer wait for memory.
LEAST_LANES = 512
#: Products of a multiprocessor that pay for laying out the weight by a launch of its own.
WORTH_A_COPY = 1 << 17
UNSIGNED = {tl.int32: tl.uint32, tl.int64: tl.uint64}


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


class Cut(NamedTuple):
    """How a volume is cut into patches, and how many neighbours of a row are accessed at once.

    Attributes:
        patch_S: of each dimension.
        word: of the volume itself.
        read_word: of the volume that is read under the taps.
    """

    patch_S: tuple[Patch, ...]
    word: int
    read_word: int


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
def part_begin(
    patch: tl.tensor, part: tl.tensor, PART_S: tl.constexpr, PATCH_S: tl.constexpr, S: tl.constexpr
) -> tl.tensor:
    """Where a patch begins to read in dimension S under a part of the window, which is whole phases or all of it."""
    return patch * PATCH_S[S][1] + part * (PART_S[S] * PATCH_S[S][4] // PATCH_S[S][5])


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
    WORD: tl.constexpr,
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
        AHEAD_W: tl.constexpr = W // PATCH_S[2][5] // WORD * WORD
        # One comparison finds what lies beyond either end: an unsigned -1 is a large number.
        d, h = (begin_S[0] + AHEAD_D).to(UNSIGNED), (begin_S[1] + AHEAD_H).to(UNSIGNED)
        w = (begin_S[2] + AHEAD_W).to(UNSIGNED)
        exists = mask & (d < size_S[0]) & (h < size_S[1]) & (w < size_S[2])
        x_ptr += AHEAD_D * strides_S[0] + AHEAD_H * strides_S[1]
        # Of another type than the offset before, or both would be joined to one that differs for each load: where
        # neighbours lie side by side, the load's instruction holds this one.
        x = load_part(x_ptr + tl.cast(AHEAD_W * strides_S[2], tl.int64), exists, W // PATCH_S[2][5] - AHEAD_W, WORD)
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
    PARTS_S: tl.constexpr,
    PART_S: tl.constexpr,
    PATCH_S: tl.constexpr,
    IS_PLANE: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    UNSIGNED: tl.constexpr,
    WORD: tl.constexpr,
    X_WORD: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane computes the places of one patch."""
    pdl_prologue()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    if CHANNELS_LAST:
        n, g, c = (row // patches)[:, None], (row % patches)[:, None], column[None, :]
    else:
        n, g, c = (row // C)[:, None], column[None, :], (row % C)[:, None]
    d, h, w = patch_position(g, patches_S, IS_PLANE)
    x_ptr += n * x_strides_NC[0] + c * x_strides_NC[1]
    w_ptr += c * w_stride_C
    if CHANNELS_LAST:
        # As wide as the tile, or its layout would be another.
        w_ptr = tl.broadcast_to(w_ptr, [BLOCK_R, BLOCK_C])
    start = tl.zeros([BLOCK_R, BLOCK_C], COMPUTE)
    if bias_ptr is not None:
        start += tl.load(bias_ptr + c * bias_stride, mask=c < C).to(COMPUTE)
    TAPS: tl.constexpr = PART_S[0] * PART_S[1] * PART_S[2]
    PLACES: tl.constexpr = PATCH_S[0][0] * PATCH_S[1][0] * PATCH_S[2][0]
    y_P = ()
    for _v in tl.static_range(PLACES):
        y_P += (start,)  # type: ignore[assignment]
    for part in range(PARTS_S[0] * PARTS_S[1] * PARTS_S[2]):
        part_S = place_in_box(part, PARTS_S)
        begin_S = (
            part_begin(d, part_S[0], PART_S, PATCH_S, 0),
            part_begin(h, part_S[1], PART_S, PATCH_S, 1),
            part_begin(w, part_S[2], PART_S, PATCH_S, 2),
        )
        x_begin = begin_S[0] * x_strides_S[0] + begin_S[1] * x_strides_S[1] + begin_S[2] * x_strides_S[2]
        x_ptr_RC = x_ptr + x_begin.to(tl.int64)
        w_begin = part_S[0] * PART_S[0] * w_strides_S[0] + part_S[1] * PART_S[1] * w_strides_S[1]
        w_ptr_RC = w_ptr + (w_begin + part_S[2] * PART_S[2] * w_strides_S[2])
        grown_P = ()
        for v in tl.static_range(PLACES):
            y_RC = y_P[v]  # type: ignore[var-annotated]
            for k in tl.static_range(TAPS):
                w_ptr_K = w_ptr_RC + tap_offset(k, w_strides_S, PART_S)
                factor = load_along_columns(w_ptr_K, mask) if CHANNELS_LAST else tl.load(w_ptr_K)
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
                    PART_S,
                    PATCH_S,
                    X_WORD,
                    EXACT=True,
                    UNSIGNED=UNSIGNED,
                )
            grown_P += (y_RC,)  # type: ignore[assignment]
        y_P = grown_P

    d, h, w = d * PATCH_S[0][0], h * PATCH_S[1][0], w * PATCH_S[2][0]
    out_ptr_RC = out_ptr + (n * out_strides_NC[0] + c * out_strides_NC[1])
    out_ptr_RC += d * out_strides_S[0] + h * out_strides_S[1] + w * out_strides_S[2]
    for v in tl.static_range(0, PLACES, WORD):
        offset, inside = place_offset(v, d, h, w, out_size_S, out_strides_S, PATCH_S)
        store_word(out_ptr_RC + offset, y_P, mask & inside, v, WORD)


def part_of(rule: Sliding, *, to_field: bool) -> Ints | None:
    """Depth, height and width of the parts of a window whose taps are unrolled together; None if a row has too many.

    A small window is one part. A larger one has parts that divide it, of fewer taps, so that patches can be larger.
    """
    walks = [walk_of(window, to_field=to_field) for window in rule.windows]
    part_S, phases = [walk.kernel for walk in walks], math.prod(walk.phases for walk in walks)
    for dim in (0, 1):
        others = math.prod(part_S) // part_S[dim]
        parts = [part for part in range(1, part_S[dim]) if part_S[dim] % part == part % walks[dim].phases == 0]
        if others * part_S[dim] > MOST_TAPS and parts:
            part_S[dim] = max((part for part in parts if others * part <= MOST_TAPS), default=parts[0])
    return tuple(part_S) if math.prod(part_S) * max(phases, 4) <= MOST_PRODUCTS else None


def has_channels_inside(x: torch.Tensor) -> bool:
    """Whether neighbours in memory are channels."""
    return x.stride(1) == 1 and x.shape[1] > 1 and math.prod(x.shape[2:]) > 1


def laid_out_as(model: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """``x``, or a copy where one of both has channels inside and the other not: no lanes are neighbours in both."""
    inside = has_channels_inside(model)
    if inside == has_channels_inside(x) or math.prod(x.shape[2:]) == 1 or not x.numel():
        return x
    copy = empty_volume(tuple(x.shape), x.dtype, x.device, channels_last=inside)
    copy_into(copy, x)
    return copy


def cut_of(own: torch.Tensor, read: torch.Tensor, walks: Sequence[Walk]) -> Cut:
    """Patches of up to 16 places, as many along one dimension as read the fewest positions; whole phases at least.

    Args:
        own: the volume that is cut.
        read: what it reads under the taps.
        walks: of each dimension.
    """
    size_S = volume_of(own, own.ndim - 2).spatial
    taps, phases = math.prod(walk.kernel for walk in walks), [walk.phases for walk in walks]
    last = has_channels_inside(own)
    word = longest_word(own)
    while word > 1 and taps * math.prod(phases[:2]) * math.lcm(phases[2], word) > MOST_PRODUCTS:
        word //= 2
    columns = math.lcm(phases[2], word)
    # Places share most along the longer side of the window; but words reach across rows already, unless there is one.
    along = 2 if walks[1].kernel < walks[2].kernel and (last or (word > 1 and size_S[1] == 1)) else 1
    most = 16 if word > 1 and along == 1 else 8 if taps <= MOST_TAPS or word > 1 else 4
    lanes = own.numel() // multiprocessors(own.device)
    most = min(most, MOST_PRODUCTS // taps, next((many for many in (16, 8) if lanes >= many * LEAST_LANES), 4))
    places_S = [*phases[:2], columns]
    step, overlap, size = places_S[along], walks[along].kernel - 1, size_S[along]

    def cost(places: int) -> tuple[int, int]:
        """What is read, and half as much again where not all places exist; of the same, more places."""
        return triton.cdiv(size, places) * (places + overlap) * (3 if size % places else 2), -places

    places_S[along] = min(range(step, max(most * step // math.prod(places_S), step) + 1, step), key=cost)
    patch_S = tuple(map(patch_of, walks, places_S))
    return Cut(patch_S, word, math.gcd(patch_S[2].reach, longest_word(read)))


def convolve_patches(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rule: Sliding,
    part_S: Ints,
    *,
    to_field: bool,
) -> None:
    """As :func:`implicit_gemm.convolve`, where groups have one channel on either side, by parts of the window."""
    spatial = out.ndim - 2
    y, source = volume_of(out, spatial), volume_of(x, spatial)
    windows = [window._replace(kernel=part) for window, part in zip(rule.windows, part_S, strict=True)]
    patch_S, word, x_word = cut_of(out, x, [walk_of(window, to_field=to_field) for window in windows])
    patches_S = tuple(triton.cdiv(size, patch.places) for size, patch in zip(y.spatial, patch_S, strict=True))
    last = has_channels_inside(out)
    N, C, patches = *y.shape_NCDHW[:2], math.prod(patches_S)
    rows, columns = (N * patches, C) if last else (N * C, patches)
    block_r, block_c = _sides(rows, columns, math.prod(part_S), channels_last=last)
    if last and out.numel() * math.prod(weight.shape[1:]) >= multiprocessors(out.device) * WORTH_A_COPY:
        weight = _with_channels_inside(weight)
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
        PARTS_S=tuple(map(triton.cdiv, kernel_sizes(rule.windows), part_S)),
        PART_S=part_S,
        PATCH_S=patch_S,
        IS_PLANE=y.spatial[0] == 1,
        COMPUTE=compute_type(out.dtype),
        CHANNELS_LAST=last,
        INDEX=index,
        UNSIGNED=UNSIGNED[index],
        WORD=word,
        X_WORD=x_word,
        BLOCK_R=block_r,
        BLOCK_C=block_c,
    )


def _with_channels_inside(weight: torch.Tensor) -> torch.Tensor:
    """A copy whose channels lie side by side under each tap, as lanes that have neighbouring channels read them."""
    channels, one, *kernel = weight.shape
    copy = torch.empty((one, *kernel, channels), dtype=weight.dtype, device=weight.device).movedim(-1, 0)
    copy_into(copy, weight)
    return copy


def _sides(rows: int, columns: int, taps: int, *, channels_last: bool) -> tuple[int, int]:
    """Rows and columns of a tile: a patch for each of 128 threads, or four channels of one, two under many taps.

    Few of them lie beyond the last column.
    """
    if INTERPRETED:
        block_c = min(triton.next_power_of_2(columns), 4096)
        return min(triton.next_power_of_2(rows), INTERPRETED_TILE // block_c), block_c
    elements = (512 if taps <= MOST_TAPS else 256) if channels_last else 128
    spare = 16 if channels_last else 4
    block_c = min((128, 64, 32, 16), key=lambda block: triton.cdiv(columns, block) * (block + spare))
    return min(triton.next_power_of_2(rows), elements // block_c), block_c
