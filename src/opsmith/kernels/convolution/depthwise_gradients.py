"""The weight's gradient of depthwise convolutions: each channel's taps sum products over all of its sites.

``dw[c, k]`` is the sum of ``sites[n, c, q] * field[n, c, q stride - padding + k dilation]`` over n and q. A lane takes
patches of sites as in depthwise_patches.py, reads what their windows share once and keeps a sum for each tap in its
registers; its program adds up the lanes' at the end. Few channels are split among programs, whose sums lie side by side
in a workspace until a second launch adds them up in a fixed order. Large windows are cut into parts, each of programs
of its own.

Compulsory traffic: field and sites once; the cache holds what neighbouring lanes and parts read again.

Suffixes: ``_S`` one entry for each of depth, height and width; ``_L`` the patches that a sum runs over, ``_C``
channels, ``_P`` the places of a patch, ``_K`` taps, ``_N`` numbers of the weight.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Ints, converted
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    multiprocessors,
    pdl_prologue,
)
from ..common.volumes import volume_of
from ..common.windows import place_in_box
from .convolution_operands import kernel_sizes, operand_of, reach_type
from .depthwise_patches import (
    UNSIGNED,
    cut_of,
    has_channels_inside,
    part_begin,
    patch_position,
    place_offset,
    product_added,
)
from .packed_elements import load_part
from .sliding import Sliding, walk_of

#: Taps of a part, where a thread has a sum of one channel for each, and where it has those of four.
MOST_SUMS, MOST_SHARED_SUMS = 16, 9
#: Rows of taps are not cut up to this length.
LONGEST_ROW = 49
#: Partial sums that one program adds up.
MOST_SPLITS = 256


@triton.jit
def depthwise_gradient_kernel(
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
    PARTS_S: tl.constexpr,
    PART_S: tl.constexpr,
    PATCH_S: tl.constexpr,
    IS_PLANE: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    UNSIGNED: tl.constexpr,
    WORD: tl.constexpr,
    FIELD_WORD: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Taps of some channels, over the patches of one split: each lane adds up its own, and all lanes at the end."""
    pdl_prologue()
    TAPS: tl.constexpr = PART_S[0] * PART_S[1] * PART_S[2]
    PLACES: tl.constexpr = PATCH_S[0][0] * PATCH_S[1][0] * PATCH_S[2][0]
    split = tl.program_id(1).to(INDEX)
    c = tl.program_id(0).to(INDEX) * BLOCK_C + tl.arange(0, BLOCK_C)
    sites_ptr_C = sites_ptr + (c * sites_strides_NC[1])[None, :]
    field_ptr_C = field_ptr + (c * field_strides_NC[1])[None, :]
    part_S = place_in_box(tl.program_id(2).to(INDEX), PARTS_S)
    if PARTS_S[0] * PARTS_S[1] * PARTS_S[2] == 1:
        part_S = (0, 0, 0)  # A constant.
    dw_K = ()
    for _k in tl.static_range(TAPS):
        dw_K += (tl.zeros([BLOCK_L, BLOCK_C], COMPUTE),)  # type: ignore[assignment]
    for i in range(steps):
        lane = ((split * steps + i) * BLOCK_L + tl.arange(0, BLOCK_L))[:, None]
        mask = (lane < L) & (c < C)[None, :]
        n, g = lane // patches, lane % patches
        d, h, w = patch_position(g, patches_S, IS_PLANE)
        begin_S = (
            part_begin(d, part_S[0], PART_S, PATCH_S, 0),
            part_begin(h, part_S[1], PART_S, PATCH_S, 1),
            part_begin(w, part_S[2], PART_S, PATCH_S, 2),
        )
        field_begin = n * field_strides_NC[0] + begin_S[0] * field_strides_S[0]
        field_begin += begin_S[1] * field_strides_S[1] + begin_S[2] * field_strides_S[2]
        field_ptr_LC = field_ptr_C + field_begin.to(tl.int64)
        d, h, w = d * PATCH_S[0][0], h * PATCH_S[1][0], w * PATCH_S[2][0]
        sites_ptr_LC = sites_ptr_C + n * sites_strides_NC[0]
        sites_ptr_LC += d * sites_strides_S[0] + h * sites_strides_S[1] + w * sites_strides_S[2]
        site_P = ()
        inside_P = ()
        for v in tl.static_range(PLACES):
            offset, inside = place_offset(v // WORD * WORD, d, h, w, sites_size_S, sites_strides_S, PATCH_S)
            site_P += (load_part(sites_ptr_LC + offset, mask & inside, v % WORD, WORD),)  # type: ignore[assignment]
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
                    PART_S,
                    PATCH_S,
                    FIELD_WORD,
                    EXACT=EXACT,
                    UNSIGNED=UNSIGNED,
                )
            grown_K += (dw_LC,)  # type: ignore[assignment]
        dw_K = grown_K
    dw_ptr_C = dw_ptr + split * split_numel + c * dw_stride_C
    for k in tl.static_range(TAPS):
        kd, kh, kw = place_in_box(k, PART_S)
        kd, kh, kw = part_S[0] * PART_S[0] + kd, part_S[1] * PART_S[1] + kh, part_S[2] * PART_S[2] + kw
        dw_C = converted(tl.sum(dw_K[k], axis=0), dw_ptr.dtype.element_ty)
        dw_ptr_KC = dw_ptr_C + (kd * dw_strides_S[0] + kh * dw_strides_S[1] + kw * dw_strides_S[2])
        tl.store(dw_ptr_KC, dw_C, mask=(c < C) & (kd < KERNEL_S[0]) & (kh < KERNEL_S[1]) & (kw < KERNEL_S[2]))


@triton.jit
def added_splits_kernel(
    dw_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    numel: tl.tensor,
    splits: tl.tensor,
    BLOCK_S: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """``dw = sum of partial[s] over s``, all of them at once."""
    pdl_prologue()
    s, i = tl.arange(0, BLOCK_S), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_SN = (s < splits)[:, None] & (i < numel)[None, :]
    dw_N = tl.sum(tl.load(partial_ptr + (s[:, None] * numel + i[None, :]), mask=mask_SN, other=0), axis=0)
    tl.store(dw_ptr + i, converted(dw_N, dw_ptr.dtype.element_ty), mask=i < numel)


def depthwise_weight_gradient(
    grad_weight: torch.Tensor, field: torch.Tensor, sites: torch.Tensor, rule: Sliding
) -> None:
    """As :func:`filter_gradients.weight_gradient`, where groups have one channel on either side."""
    spatial, C = field.ndim - 2, field.shape[1]
    f, s = volume_of(field, spatial), volume_of(sites, spatial)
    kernel_S = kernel_sizes(rule.windows)
    last = has_channels_inside(field)
    part_S = _part_of(kernel_S, MOST_SHARED_SUMS if last else MOST_SUMS)
    parts_S = tuple(map(triton.cdiv, kernel_S, part_S))
    windows = [window._replace(kernel=part) for window, part in zip(rule.windows, part_S, strict=True)]
    patch_S, word, field_word = cut_of(sites, field, [walk_of(window, to_field=False) for window in windows])
    patches_S = tuple(triton.cdiv(size, patch.places) for size, patch in zip(s.spatial, patch_S, strict=True))
    is_exact = all(size % patch.places == 0 for size, patch in zip(s.spatial, patch_S, strict=True))
    L, parts = sites.shape[0] * math.prod(patches_S), math.prod(parts_S)
    block = _block(L, C, math.prod(part_S), channels_last=last)
    blocks_C, steps = triton.cdiv(C, block.channels), triton.cdiv(L, block.patches)
    splits = _splits(blocks_C * parts, steps, field.device)
    target, size = grad_weight, grad_weight.numel()
    if splits > 1:
        target = torch.empty((splits, size), dtype=compute_dtype(field.dtype), device=field.device)
    stride_C, _, *strides = grad_weight.stride()
    index = reach_type(operand_of(field, C), operand_of(sites, C))
    launch(
        depthwise_gradient_kernel,
        (blocks_C, splits, parts),
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
        loop_bound(triton.cdiv(steps, splits)),
        KERNEL_S=kernel_S,
        PARTS_S=parts_S,
        PART_S=part_S,
        PATCH_S=patch_S,
        IS_PLANE=s.spatial[0] == 1,
        EXACT=is_exact,
        COMPUTE=compute_type(field.dtype),
        INDEX=index,
        UNSIGNED=UNSIGNED[index],
        WORD=word,
        FIELD_WORD=field_word,
        BLOCK_L=block.patches,
        BLOCK_C=block.channels,
        num_warps=block.warps,
    )
    if splits > 1:
        _add_splits(grad_weight, target)


def _part_of(kernel_S: Ints, most: int) -> Ints:
    """Depth, height and width of a window's parts of up to ``most`` taps, or one row if that has more."""
    d, h, w = kernel_S
    # Rows are cut where words may begin.
    part_w = w if w <= LONGEST_ROW else 32
    part_h = _even_part(h, max(most // part_w, 1))
    return _even_part(d, max(most // (part_h * part_w), 1)), part_h, part_w


def _even_part(size: int, most: int) -> int:
    """The largest of equal parts of up to ``most``."""
    parts = -(-size // most)
    return -(-size // parts)


def _splits(programs: int, steps: int, device: torch.device) -> int:
    """How many programs share a sum: as many as fill the device, of at least two steps each."""
    if INTERPRETED:
        return 1
    return max(min(8 * multiprocessors(device) // programs, steps // 2, MOST_SPLITS), 1)


def _add_splits(grad_weight: torch.Tensor, partial: torch.Tensor) -> None:
    """Add up partial sums of shape (splits, numel) into the dense weight's gradient."""
    splits, size = partial.shape
    block_s = triton.next_power_of_2(splits)
    block_n = max(triton.next_power_of_2(min(size, 8192 // block_s)), 16)
    launch(
        added_splits_kernel,
        (triton.cdiv(size, block_n),),
        partial.device,
        grad_weight,
        partial,
        size,
        splits,
        BLOCK_S=block_s,
        BLOCK_N=block_n,
    )


class Block(NamedTuple):
    """Patches and channels of a program, and its warps."""

    patches: int
    channels: int
    warps: int


def _block(L: int, C: int, taps: int, *, channels_last: bool) -> Block:
    """A thread has a sum for each tap of a channel, or of four side by side."""
    patches = triton.next_power_of_2(max(L, 1))
    if not channels_last and not INTERPRETED:
        patches = min(patches, 128)
        return Block(patches, 1, max(patches // 32, 1))
    channels = min(triton.next_power_of_2(C), 64)
    elements = INTERPRETED_TILE // 16 if INTERPRETED else 512 if taps <= MOST_SHARED_SUMS else 128
    return Block(min(patches, elements // channels), channels, 4)
