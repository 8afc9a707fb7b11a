"""Sums of overlapping copies: the backward passes of mirrored and replicated pads, of unfold, and col2im.

The forward op has copied an element to several places. Here each element of the result gathers what has come to
those places, so that no two programs write to one address: every element is written once, in one launch, without
atomic operations, and always in the same order. ``(numel of the gradient + numel of the result) * itemsize`` bytes.

Suffixes: ``_A`` rows, ``_B`` columns, ``_S`` batch of a tile (see transposed_tiles.py), ``_D`` one entry per dimension.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, Ints, converted, index_type, merge_dims, normalized_dims
from ..common.lanes import load_along_columns
from ..common.launch import compute_type, launch, layout_of, loop_bound, pdl_prologue, require_served
from ..common.transposed_tiles import cut_dims, offset_in, programs, sides, sizes_of, tile_for, tile_indices
from .mirrored_planes import unmirror


class Copies(enum.IntEnum):
    """Where the copies of coordinate c are, in one dimension of ``size``."""

    #: At c.
    ONE = 0
    #: At ``c + before`` and mirrored at both ends.
    MIRRORED = 1
    #: At ``c + before``; those of the end elements go on up to the end.
    CLAMPED = 2
    #: In each window w at k, where ``c + before = w * step + k``.
    WINDOWS = 3
    #: As WINDOWS, where ``c + before = w * step + k * dilation``.
    DILATED = 4


class Fold(NamedTuple):
    """One dimension: the result's size and where its copies lie in the gradient.

    Attributes:
        size: of the result.
        stride: of the gradient, between copies or between windows.
        copies: the rule.
        before: what is added to the coordinate first.
        extent: of the gradient: positions, or windows.
        inner: the gradient's stride inside of a window.
        kernel: the size of a window.
        step: between windows.
        dilation: between the elements of a window.
    """

    size: int
    stride: int
    copies: Copies = Copies.ONE
    before: int = 0
    extent: int = 0
    inner: int = 0
    kernel: int = 1
    step: int = 1
    dilation: int = 1

    def copies_at_most(self) -> int:
        """No element has more copies than this."""
        if self.copies is Copies.MIRRORED:
            return 3
        if self.copies is Copies.CLAMPED:
            after = self.extent - self.size - self.before
            return 1 + (self.before + after if self.size == 1 else max(self.before, after, 0))
        if self.copies is Copies.WINDOWS:
            return -(-self.kernel // self.step)
        return self.kernel if self.copies is Copies.DILATED else 1


# ---------------------------------------------------------------- the kernel

_MIRRORED, _CLAMPED, _WINDOWS, _DILATED = (tl.constexpr(int(copies)) for copies in Copies if copies)


@triton.jit
def copy_of(index: tl.tensor, term: tl.tensor, view: tl.tuple, COPIES_D: tl.constexpr) -> tl.tuple:
    """Offset in the gradient of one copy of each element in one group of dimensions, and whether it exists.

    ``view`` holds the fields of :class:`Fold`, dimension by dimension, then the number of copies and what to divide
    ``term`` by, which numbers the combinations of the copies of all dimensions.
    """
    # What comes last is from settled() in launch.py.
    shape_D, stride_D, before_D, extent_D, inner_D, kernel_D, step_D, dilation_D, count_D, divisor_D, _ = view
    offset = index * 0
    exists = index >= 0
    for d in tl.static_range(len(shape_D)):
        c = index
        if d + 1 < len(shape_D):
            c = index % shape_D[d]
            index = index // shape_D[d]
        t = term // divisor_D[d] % count_D[d]
        if COPIES_D[d] == _MIRRORED:
            last = shape_D[d] - 1
            mirrored = before_D[d] + tl.where(t == 1, -c, 2 * last - c)
            p = tl.where(t == 0, c + before_D[d], mirrored)
            exists = exists & (p >= 0) & (p < extent_D[d]) & ((t != 1) | (c > 0)) & ((t != 2) | (c < last))
            offset += p * stride_D[d]
        elif COPIES_D[d] == _CLAMPED:
            after = extent_D[d] - shape_D[d] - before_D[d]
            low = tl.where((c == 0) & (before_D[d] > 0), 0, c + before_D[d])
            high = tl.where((c == shape_D[d] - 1) & (after > 0), extent_D[d] - 1, c + before_D[d])
            p = low + t
            exists = exists & (p >= 0) & (p <= high) & (p < extent_D[d])
            offset += p * stride_D[d]
        elif COPIES_D[d] == _WINDOWS:
            w = (c + before_D[d]) // step_D[d] - t
            k = c + before_D[d] - w * step_D[d]
            exists = exists & (w >= 0) & (w < extent_D[d]) & (k < kernel_D[d])
            offset += w * stride_D[d] + k * inner_D[d]
        elif COPIES_D[d] == _DILATED:
            begin = c + before_D[d] - t * dilation_D[d]
            w = begin // step_D[d]
            exists = exists & (begin >= 0) & (begin % step_D[d] == 0) & (w < extent_D[d])
            offset += w * stride_D[d] + t * inner_D[d]
        else:
            offset += c * stride_D[d]
    return offset, exists


@triton.jit
def fold_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    out_sides: tl.tuple,
    views: tl.tuple,
    terms: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    COPIES_S: tl.constexpr,
    COPIES_A: tl.constexpr,
    COPIES_B: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """``out[s, a, b]`` = sum of the copies of that element, up to ``terms`` of them."""
    pdl_prologue()
    s, a, b = tile_indices(rows, columns, INDEX, HEIGHT, WIDTH)
    inside_AB = (a < rows)[:, None] & (b < columns)[None, :]
    total_AB = tl.zeros([HEIGHT, WIDTH], COMPUTE)
    for term in range(terms):
        copy_S, exists_S = copy_of(s, term, views[0], COPIES_S)
        copy_A, exists_A = copy_of(a, term, views[1], COPIES_A)
        copy_B, exists_B = copy_of(b, term, views[2], COPIES_B)
        exists_AB = inside_AB & exists_S & exists_A[:, None] & exists_B[None, :]
        grad_AB = grad_ptr + copy_S + (copy_A[:, None] + copy_B[None, :])
        total_AB += load_along_columns(grad_AB, exists_AB).to(COMPUTE)
    out = out_ptr + offset_in(s, out_sides[0])
    out_AB = out + (offset_in(a, out_sides[1])[:, None] + offset_in(b, out_sides[2])[None, :])
    tl.store(out_AB, converted(total_AB, out_ptr.dtype.element_ty), mask=inside_AB)


def fold(out: torch.Tensor, grad: torch.Tensor, folds: Sequence[Fold]) -> None:
    """Write to each element of ``out`` the sum of its copies in ``grad``.

    Args:
        out: contiguous.
        grad: of the same type.
        folds: one for each dimension of ``out``.
    """
    if out.numel() == 0:
        return
    merged = _merged(list(reversed(folds)))
    shape = tuple(one.size for one in merged)
    # The strides between neighbours in the gradient; in a window these are its own.
    near = tuple(one.inner if one.copies in (Copies.WINDOWS, Copies.DILATED) else one.stride for one in merged)
    geometry = Geometry(shape, (tuple(itertools.accumulate(shape[:-1], lambda a, b: a * b, initial=1)), near))
    cut = cut_dims(geometry)
    sizes = sizes_of(geometry, cut)
    transposed = bool(cut.rows) and 0 < near[cut.rows[0]] < near[0]
    tile = tile_for(sizes, out.dtype.itemsize, out.device, transposed=transposed)
    counts = [one.copies_at_most() for one in merged]
    divisors = list(itertools.accumulate(counts[:-1], lambda a, b: a * b, initial=1))
    codes = [tuple(int(merged[d].copies) for d in group) or (0,) for group in cut]
    launch(
        fold_kernel,
        (programs(sizes, tile),),
        out.device,
        out,
        grad,
        sides(geometry, cut, 0),
        tuple(_view(merged, counts, divisors, group) for group in cut),
        loop_bound(math.prod(counts)),
        sizes[1],
        sizes[2],
        COPIES_S=codes[0],
        COPIES_A=codes[1],
        COPIES_B=codes[2],
        COMPUTE=compute_type(out.dtype),
        INDEX=index_type(geometry, Geometry(tuple(grad.shape), (grad.stride(),))),
        HEIGHT=tile.height,
        WIDTH=tile.width,
    )


_FIELDS = ("size", "stride", "before", "extent", "inner", "kernel", "step", "dilation")


def _view(folds: Sequence[Fold], counts: Sequence[int], divisors: Sequence[int], group: Ints) -> tuple[Ints, ...]:
    """What :func:`copy_of` takes of one group of dimensions."""
    if not group:
        return tuple((getattr(Fold(1, 0), name),) for name in _FIELDS) + ((1,), (1,))
    fields = tuple(tuple(getattr(folds[d], name) for d in group) for name in _FIELDS)
    return (*fields, tuple(counts[d] for d in group), tuple(divisors[d] for d in group))


def _merged(folds: Sequence[Fold]) -> list[Fold]:
    """Merge dimensions, fastest first, that are not folded and lie seamlessly behind each other."""
    merged: list[Fold] = []
    for one in folds:
        if one.size == 1 and one.copies is Copies.ONE:
            continue
        last = merged[-1] if merged else None
        if last and last.copies is one.copies is Copies.ONE and one.stride == last.size * last.stride:
            merged[-1] = last._replace(size=last.size * one.size)
        else:
            merged.append(one)
    return merged or [Fold(1, 0)]


# ---------------------------------------------------------------- pads


def reflection_pad1d_backward(grad_output: torch.Tensor, self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """The gradient of a mirrored pad in one dimension."""
    return _unpadded(grad_output, self, padding, 1, Copies.MIRRORED)


def reflection_pad2d_backward(grad_output: torch.Tensor, self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """The gradient of a mirrored pad in two dimensions."""
    return _unpadded(grad_output, self, padding, 2, Copies.MIRRORED)


def reflection_pad3d_backward(grad_output: torch.Tensor, self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """The gradient of a mirrored pad in three dimensions."""
    return _unpadded(grad_output, self, padding, 3, Copies.MIRRORED)


def replication_pad1d_backward(grad_output: torch.Tensor, self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """The gradient of a replicated pad in one dimension."""
    return _unpadded(grad_output, self, padding, 1, Copies.CLAMPED)


def replication_pad2d_backward(grad_output: torch.Tensor, self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """The gradient of a replicated pad in two dimensions."""
    return _unpadded(grad_output, self, padding, 2, Copies.CLAMPED)


def replication_pad3d_backward(grad_output: torch.Tensor, self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """The gradient of a replicated pad in three dimensions."""
    return _unpadded(grad_output, self, padding, 3, Copies.CLAMPED)


def _unpadded(
    grad: torch.Tensor, self: torch.Tensor, padding: Sequence[int], spatial: int, copies: Copies
) -> torch.Tensor:
    """Add up what the pads have copied.

    Raises:
        ValueError: shapes and pads that do not fit each other.
    """
    require_served(grad, dtypes=_FOLDED)
    folds = []
    for d, (size, padded) in enumerate(zip(self.shape, grad.shape, strict=True)):
        from_end = self.ndim - 1 - d
        if from_end >= spatial:
            folds.append(Fold(size, grad.stride(d)))
            continue
        before, after = padding[2 * from_end], padding[2 * from_end + 1]
        if size + before + after != padded:
            raise ValueError(f"a gradient of shape {list(grad.shape)} does not fit {list(self.shape)} with {padding}")
        rule = copies if before or after else Copies.ONE
        folds.append(Fold(size, grad.stride(d), rule, before, padded))
    out = torch.empty(self.shape, dtype=grad.dtype, device=grad.device)
    if copies is Copies.MIRRORED and spatial == 2 and grad.stride(-1) == 1:
        unmirror(out, grad, padding)
    else:
        fold(out, grad, folds)
    return out


_FOLDED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

# ---------------------------------------------------------------- windows


def unfold_backward(grad_in: torch.Tensor, input_sizes: Sequence[int], dim: int, size: int, step: int) -> torch.Tensor:
    """The gradient of ``unfold``: windows of ``size`` every ``step`` along ``dim``, which it has put last."""
    require_served(grad_in, dtypes=_FOLDED)
    out = torch.empty(list(input_sizes), dtype=grad_in.dtype, device=grad_in.device)
    if out.ndim == 0:
        fold(out, grad_in, [])
        return out
    (axis,) = normalized_dims(dim, out.ndim)
    folds = [Fold(length, grad_in.stride(d)) for d, length in enumerate(out.shape)]
    folds[axis] = Fold(
        out.shape[axis],
        grad_in.stride(axis),
        Copies.WINDOWS,
        extent=grad_in.shape[axis],
        inner=grad_in.stride(-1),
        kernel=size,
        step=step,
    )
    fold(out, grad_in, folds)
    return out


def col2im(
    self: torch.Tensor,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    """``[N, C kh kw, windows]`` to ``[N, C, H, W]``: each pixel is the sum of its places in all windows.

    Raises:
        ValueError: sizes that do not fit each other.
    """
    require_served(self, dtypes=_FOLDED)
    windows = _windows(output_size, kernel_size, dilation, padding, stride)
    kernel = math.prod(kernel_size)
    if self.ndim not in (2, 3) or self.shape[-2] % kernel or self.shape[-1] != math.prod(windows):
        raise ValueError(f"a tensor of shape {list(self.shape)} holds no {windows} windows of {list(kernel_size)}")
    grad = self.unflatten(-1, windows).unflatten(-3, (self.shape[-2] // kernel, *kernel_size))
    out = torch.empty((*grad.shape[:-4], *output_size), dtype=self.dtype, device=self.device)
    outer = [Fold(out.shape[d], grad.stride(d)) for d in range(out.ndim - 2)]
    planes = [
        Fold(
            output_size[d],
            grad.stride(d - 2),
            Copies.WINDOWS if dilation[d] == 1 else Copies.DILATED,
            padding[d],
            windows[d],
            grad.stride(d - 4),
            kernel_size[d],
            stride[d],
            dilation[d],
        )
        for d in range(2)
    ]
    fold(out, grad, outer + planes)
    return out


def _windows(
    size: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Ints:
    """How many windows fit, down and across.

    Raises:
        ValueError: none, or settings that are not two positive numbers (padding: not negative) each.
    """
    settings = (size, kernel, dilation, padding, stride)
    if any(len(one) != 2 for one in settings) or min(*kernel, *dilation, *stride) < 1 or min(padding) < 0:
        raise ValueError(
            f"{list(map(list, settings))} are no sizes, kernels, dilations, pads and strides of two dimensions"
        )
    found = [(size[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1 for d in range(2)]
    if min(found) < 1:
        raise ValueError(f"no window of {list(kernel)} fits into {list(size)}")
    return tuple(found)


@triton.jit
def im2col_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    channels: tl.tensor,
    size: tl.tuple,
    strides: tl.tuple,
    kernel: tl.tuple,
    dilation: tl.tuple,
    padding: tl.tuple,
    step: tl.tuple,
    across: tl.tensor,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """``out[n, c, i, j, y, x] = x[n, c, y step + i dilation - padding, ..]``: rows are (n, c, i, j), columns (y, x)."""
    pdl_prologue()
    _, a, b = tile_indices(rows, columns, INDEX, HEIGHT, WIDTH)
    j, rest = a % kernel[1], a // kernel[1]
    i, rest = rest % kernel[0], rest // kernel[0]
    plane_A = x_ptr + (rest // channels) * strides[0] + (rest % channels) * strides[1]
    y_AB = (i * dilation[0] - padding[0])[:, None] + (b // across * step[0])[None, :]
    x_AB = (j * dilation[1] - padding[1])[:, None] + (b % across * step[1])[None, :]
    inside_AB = (a < rows)[:, None] & (b < columns)[None, :]
    shown_AB = inside_AB & (y_AB >= 0) & (y_AB < size[0]) & (x_AB >= 0) & (x_AB < size[1])
    value_AB = load_along_columns(plane_A[:, None] + (y_AB * strides[2] + x_AB * strides[3]), shown_AB)
    tl.store(out_ptr + (a * columns)[:, None] + b[None, :], value_AB, mask=inside_AB)


def im2col(
    self: torch.Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    """``[N, C, H, W]`` to ``[N, C kh kw, windows]``: the elements of every window, zero where it stands out.

    Raises:
        ValueError: sizes that do not fit each other.
    """
    require_served(self)
    if self.ndim not in (3, 4) or 0 in self.shape[-3:]:
        raise ValueError(f"im2col takes images [N, C, H, W] or [C, H, W], not {list(self.shape)}")
    windows = _windows(self.shape[-2:], kernel_size, dilation, padding, stride)
    x = self if self.ndim == 4 else self.unsqueeze(0)
    elements, columns = x.shape[1] * math.prod(kernel_size), math.prod(windows)
    rows = x.shape[0] * elements
    out = torch.empty((*self.shape[:-3], elements, columns), dtype=self.dtype, device=self.device)
    if out.numel() == 0:
        return out
    tile = tile_for((1, rows, columns), out.dtype.itemsize, out.device, transposed=False)
    launch(
        im2col_kernel,
        (programs((1, rows, columns), tile),),
        out.device,
        out,
        x,
        rows,
        columns,
        x.shape[1],
        tuple(x.shape[-2:]),
        x.stride(),
        tuple(kernel_size),
        tuple(dilation),
        tuple(padding),
        tuple(stride),
        windows[1],
        INDEX=index_type(merge_dims(*_spans(x)), merge_dims(*_spans(out))),
        HEIGHT=tile.height,
        WIDTH=tile.width,
    )
    return out


def _spans(tensor: torch.Tensor) -> tuple[Ints, list[Ints], Ints]:
    shape, strides = layout_of(tensor)
    return shape, [strides], tuple(range(tensor.ndim))
