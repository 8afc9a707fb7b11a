"""Results that show their source through a window: pads, crops, rolls, and the backward passes of slices.

An element of the result lies in the source at coordinates that are found dimension by dimension, or
outside of it, where a number or another tensor shows. So one kernel writes every element once:
``(numel of the result + numel of the source) * itemsize`` bytes, where filling first and copying then takes up to half
as much again.

Suffixes: ``_A`` rows, ``_B`` columns, ``_S`` batch of a tile (see transposed_tiles.py), ``_D`` one entry per dimension.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, Ints, converted, index_type, number
from ..common.lanes import load_along_columns, store_along_columns
from ..common.launch import compute_type, launch, layout_of, number_bits, pdl_prologue
from ..common.transposed_tiles import (
    Cut,
    TransposedTile,
    cut_dims,
    offset_in,
    programs,
    sides,
    sizes_of,
    tile_for,
    tile_indices,
)


class FrameRule(enum.IntEnum):
    """How a coordinate of the result gives one of the source, from which ``start`` is taken off first."""

    #: The same.
    PLAIN = 0
    #: Nothing outside of the source's ``extent``.
    WINDOW = 1
    #: As WINDOW, and only every ``step``-th.
    STEPS = 2
    #: Beyond an end it goes on at the other.
    ROLL = 3
    #: Beyond an end it turns back, without the outermost element again.
    REFLECT = 4
    #: Beyond an end it stays there.
    CLAMP = 5


class Dim(NamedTuple):
    """One dimension: the result's size and stride, the source's stride, and the rule between them."""

    size: int
    stride: int
    source: int
    other: int = 0
    rule: FrameRule = FrameRule.PLAIN
    start: int = 0
    extent: int = 0
    step: int = 1


# ---------------------------------------------------------------- the kernel

_WINDOW, _STEPS, _ROLL, _REFLECT, _CLAMP = (
    tl.constexpr(int(rule))
    for rule in (FrameRule.WINDOW, FrameRule.STEPS, FrameRule.ROLL, FrameRule.REFLECT, FrameRule.CLAMP)
)


@triton.jit
def source_of(index: tl.tensor, view: tl.tuple, RULE_D: tl.constexpr) -> tl.tuple:
    """Offset in the source of the element with flat ``index`` in one group of dimensions, and whether it is there.

    ``view`` holds the group's sizes, source strides, starts, extents and steps.
    """
    shape_D, strides_D, start_D, extent_D, step_D, _ = view  # See settled() in launch.py.
    offset = index * 0
    inside = index >= 0
    for d in tl.static_range(len(shape_D)):
        c = index
        if d + 1 < len(shape_D):
            c = index % shape_D[d]
            index = index // shape_D[d]
        c = c - start_D[d]
        if RULE_D[d] == _WINDOW:
            inside = inside & (c >= 0) & (c < extent_D[d])
        elif RULE_D[d] == _STEPS:
            inside = inside & (c >= 0) & (c % step_D[d] == 0)
            c = c // step_D[d]
            inside = inside & (c < extent_D[d])
        elif RULE_D[d] == _ROLL:
            c = tl.where(c < 0, c + extent_D[d], c)
        elif RULE_D[d] == _REFLECT:
            c = tl.where(c < 0, -c, c)
            c = tl.where(c >= extent_D[d], 2 * (extent_D[d] - 1) - c, c)
        elif RULE_D[d] == _CLAMP:
            c = tl.minimum(tl.maximum(c, 0), extent_D[d] - 1)
        offset += c * strides_D[d]
    return offset, inside


@triton.jit
def window_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    other: tl.tensor,
    out_sides: tl.tuple,
    x_views: tl.tuple,
    other_sides: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    RULES_S: tl.constexpr,
    RULES_A: tl.constexpr,
    RULES_B: tl.constexpr,
    NUMBER: tl.constexpr,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """``out[s, a, b]`` is the source's element there, or else ``other``: a number of type NUMBER, or a tensor."""
    pdl_prologue()
    s, a, b = tile_indices(rows, columns, INDEX, HEIGHT, WIDTH)
    inside_AB = (a < rows)[:, None] & (b < columns)[None, :]
    x_S, here_S = source_of(s, x_views[0], RULES_S)
    x_A, here_A = source_of(a, x_views[1], RULES_A)
    x_B, here_B = source_of(b, x_views[2], RULES_B)
    here_AB = inside_AB & here_S & here_A[:, None] & here_B[None, :]
    x_AB = load_along_columns(x_ptr + x_S + (x_A[:, None] + x_B[None, :]), here_AB)
    if NUMBER is None:
        behind = other + offset_in(s, other_sides[0])
        behind_AB = behind + (offset_in(a, other_sides[1])[:, None] + offset_in(b, other_sides[2])[None, :])
        x_AB = tl.where(here_AB, x_AB, load_along_columns(behind_AB, inside_AB & (here_AB == 0)))
    else:
        x_AB = tl.where(here_AB, x_AB, converted(number(other, NUMBER), x_AB.dtype))
    out = out_ptr + offset_in(s, out_sides[0])
    out_AB = out + (offset_in(a, out_sides[1])[:, None] + offset_in(b, out_sides[2])[None, :])
    store_along_columns(out_AB, x_AB, inside_AB)


def show(out: torch.Tensor, source: torch.Tensor, dims: Sequence[Dim], other: torch.Tensor | float = 0) -> None:
    """Write every element of ``out``: the source's through the rules of ``dims``, or else ``other``.

    Args:
        out: without overlap.
        source: of the same dtype.
        dims: one for each dimension of ``out``, whose ``stride`` and ``other`` are set here.
        other: what shows where no source is: a number, or a tensor like ``out``.
    """
    if out.numel() == 0:
        return
    behind = other.stride() if isinstance(other, torch.Tensor) else (0,) * out.ndim
    placed = [dim._replace(stride=out.stride(d), other=behind[d]) for d, dim in enumerate(dims)]
    merged = _merged(sorted(placed, key=lambda dim: dim.stride))
    shape = tuple(dim.size for dim in merged)
    strides = [tuple(getattr(dim, name) for dim in merged) for name in ("stride", "source", "other")]
    geometry = Geometry(shape, tuple(strides))
    # Offsets in the source reach no further than its own extents do.
    cut = cut_dims(geometry)
    transposed = bool(cut.rows) and 0 < strides[1][cut.rows[0]] < strides[1][0]
    cut, tile = by_images(geometry, cut, out.dtype.itemsize, out.device, transposed=transposed)
    sizes = sizes_of(geometry, cut)
    element = compute_type(out.dtype)
    is_number = not isinstance(other, torch.Tensor)
    rules = [tuple(int(merged[d].rule) for d in group) or (0,) for group in cut]
    launch(
        window_kernel,
        (programs(sizes, tile),),
        out.device,
        out,
        source,
        other if isinstance(other, torch.Tensor) else number_bits(other, element),
        sides(geometry, cut, 0),
        tuple(_view(merged, group) for group in cut),
        sides(geometry, cut, 2),
        sizes[1],
        sizes[2],
        RULES_S=rules[0],
        RULES_A=rules[1],
        RULES_B=rules[2],
        NUMBER=element if is_number else None,
        INDEX=index_type(geometry, _reach(source)),
        HEIGHT=tile.height,
        WIDTH=tile.width,
    )


def by_images(
    geometry: Geometry, cut: Cut, itemsize: int, device: torch.device, *, transposed: bool
) -> tuple[Cut, TransposedTile]:
    """The cut with a tile for it; its rows are those of one dimension where that leaves few lanes idle.

    A row of several dimensions is divided by their sizes in every thread, two thirds of a narrow tile's instructions.
    """
    tile = tile_for(sizes_of(geometry, cut), itemsize, device, transposed=transposed)
    images = Cut((*cut.rows[1:], *cut.batch), cut.rows[:1], cut.columns)
    sizes = sizes_of(geometry, images)
    theirs = tile_for(sizes, itemsize, device, transposed=transposed)
    fits = programs(sizes, theirs) <= 1.25 * programs(sizes_of(geometry, cut), tile)
    alike = theirs.height * theirs.width == tile.height * tile.width
    return (images, theirs) if len(cut.rows) > 1 and fits and alike else (cut, tile)


def _view(dims: Sequence[Dim], group: Ints) -> tuple[Ints, ...]:
    """What :func:`source_of` takes of one group of dimensions."""
    chosen = [dims[d] for d in group] or [Dim(1, 0, 0)]
    return tuple(tuple(getattr(dim, name) for dim in chosen) for name in ("size", "source", "start", "extent", "step"))


def _reach(source: torch.Tensor) -> Geometry:
    """How far the source's own offsets reach."""
    shape, strides = layout_of(source)
    return Geometry(shape, (strides,))


def _merged(dims: Sequence[Dim]) -> list[Dim]:
    """Merge dimensions, fastest first, that lie seamlessly behind each other in every operand.

    A window or a roll takes the plain dimension below it along: rows that are left out are elements left out.
    """
    merged: list[Dim] = []
    for dim in map(_simplified, dims):
        if dim.size == 1 and dim.rule is FrameRule.PLAIN:
            continue
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.rule is FrameRule.PLAIN
            and dim.rule in (FrameRule.PLAIN, FrameRule.WINDOW, FrameRule.ROLL)
        ):
            source = last.size * last.source if dim.extent == 1 and dim.rule is FrameRule.WINDOW else dim.source
            wide = last.size * last.stride, last.size * last.source, last.size * last.other
            if (dim.stride, source, dim.other) == wide:
                merged[-1] = Dim(
                    size=dim.size * last.size,
                    stride=last.stride,
                    source=last.source,
                    other=last.other,
                    rule=dim.rule,
                    start=dim.start * last.size,
                    extent=dim.extent * last.size,
                )
                continue
        merged.append(dim)
    return merged or [Dim(1, 0, 0)]


def _simplified(dim: Dim) -> Dim:
    """A rule that changes nothing is none."""
    changes = dim.start != 0 or dim.extent != dim.size or dim.rule is FrameRule.STEPS
    return dim if changes else dim._replace(rule=FrameRule.PLAIN, extent=0)
