"""Where the elements of a view lie: sizes, strides and the first element's place, worked out from those of a tensor.

Nothing here touches a tensor. What is wrong with a call raises what eager raises: ``IndexError`` for a dimension or an
index out of range, else ``RuntimeError``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..common.indexing import Ints


class View(NamedTuple):
    """How a tensor looks at its storage, counted in elements."""

    offset: int
    sizes: Ints
    strides: Ints

    @property
    def elements(self) -> int:
        """How many there are."""
        return math.prod(self.sizes)

    @property
    def end(self) -> int:
        """One more than the place of the last element; 0 where there is none."""
        if not self.elements:
            return 0
        return self.offset + 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))


def wrapped(dim: int, ndim: int) -> int:
    """A dimension counted from the front; a tensor without dimensions passes for one with a single one.

    Raises:
        IndexError: out of range.
    """
    room = max(ndim, 1)
    if not -room <= dim < room:
        raise IndexError(f"dimension {dim} is out of range for a tensor of {ndim} dimensions")
    return dim % room


def distinct(dims: Iterable[int], ndim: int) -> list[int]:
    """Dimensions as :func:`wrapped`, of which none may be there twice."""
    found = [wrapped(dim, ndim) for dim in dims]
    if len(set(found)) < len(found):
        raise RuntimeError(f"a dimension appears twice in {found}")
    return found


def _require_dimensions(view: View, what: str, error: type[Exception]) -> None:
    if not view.sizes:
        raise error(f"{what} takes a tensor with dimensions")


# ---------------------------------------------------------------- other dimensions


def permuted(view: View, dims: Sequence[int]) -> View:
    """The dimensions in another order."""
    if len(dims) != len(view.sizes):
        raise RuntimeError(f"{list(dims)} is no order of the dimensions of a tensor that has {len(view.sizes)}")
    order = distinct(dims, len(view.sizes))
    return View(view.offset, tuple(view.sizes[dim] for dim in order), tuple(view.strides[dim] for dim in order))


def transposed(view: View, dim0: int, dim1: int) -> View:
    """Two dimensions for each other."""
    first, second = wrapped(dim0, len(view.sizes)), wrapped(dim1, len(view.sizes))
    order = list(range(len(view.sizes)))
    if order:
        order[first], order[second] = second, first
    return permuted(view, order)


def transposed_matrix(view: View) -> View:
    """A matrix transposed; fewer dimensions as they are."""
    if len(view.sizes) > 2:
        raise RuntimeError(f"t takes at most two dimensions, not {len(view.sizes)}")
    return transposed(view, 0, 1) if len(view.sizes) == 2 else view


def squeezed(view: View, dims: Iterable[int] | None = None) -> View:
    """Without dimensions of size 1: all of them, or those among ``dims``."""
    ndim = len(view.sizes)
    asked = range(ndim) if dims is None else distinct(dims, ndim)
    kept = [dim for dim in range(ndim) if dim not in asked or view.sizes[dim] != 1]
    return View(view.offset, tuple(view.sizes[dim] for dim in kept), tuple(view.strides[dim] for dim in kept))


def unsqueezed(view: View, dim: int) -> View:
    """With a dimension of size 1 put in."""
    at = wrapped(dim, len(view.sizes) + 1)
    stride = view.sizes[at] * view.strides[at] if at < len(view.sizes) else 1
    return View(view.offset, (*view.sizes[:at], 1, *view.sizes[at:]), (*view.strides[:at], stride, *view.strides[at:]))


def expanded(view: View, sizes: Sequence[int]) -> View:
    """Repeated along new dimensions in front and along those of size 1, whose stride becomes 0; -1 keeps a size."""
    new = len(sizes) - len(view.sizes)
    if new < 0:
        raise RuntimeError(f"a tensor of {len(view.sizes)} dimensions does not expand to {len(sizes)}")
    before = (*[1] * new, *view.sizes)
    after = (*sizes[:new], *(was if size == -1 else size for size, was in zip(sizes[new:], view.sizes, strict=True)))
    if any(size < 0 or was not in (1, size) for size, was in zip(after, before, strict=True)):
        raise RuntimeError(f"a tensor of sizes {view.sizes} does not expand to {list(sizes)}")
    strides: list[int] = []  # The last dimension's first.
    for at in reversed(range(len(after))):
        if at >= new:
            stride = view.strides[at - new]
        else:
            stride = after[at + 1] * strides[-1] if view.sizes else 0
        strides.append(stride if after[at] == before[at] else 0)
    return View(view.offset, after, tuple(reversed(strides)))


def reshaped(view: View, sizes: Sequence[int]) -> View:
    """The same elements in the same order under other sizes, one of which may be -1.

    Raises:
        RuntimeError: another number of elements, or no strides lead over them without a copy.
    """
    asked = _completed(sizes, view.elements)
    strides = _strides_over(view, asked)
    if strides is None:
        raise RuntimeError(f"no view of sizes {list(asked)} leads over sizes {view.sizes} at strides {view.strides}")
    return View(view.offset, asked, strides)


def _completed(sizes: Sequence[int], elements: int) -> Ints:
    """Sizes for so many elements, with the one of them that is -1 worked out."""
    known = math.prod(size for size in sizes if size != -1)
    if min(sizes, default=0) < -1 or list(sizes).count(-1) > 1:
        raise RuntimeError(f"{list(sizes)} is no shape: sizes are not negative, and -1 stands there once at most")
    if -1 not in sizes:
        fits = known == elements
    else:
        fits = known > 0 and elements % known == 0
    if not fits:
        raise RuntimeError(f"{elements} elements do not fill the shape {list(sizes)}")
    return tuple(elements // known if size == -1 else size for size in sizes)


def _strides_over(view: View, sizes: Ints) -> Ints | None:
    """Strides that meet a view's elements in their order under other sizes, or None.

    Dimensions that lie seamlessly behind each other are one run; the sizes have to cut every run at its ends.
    """
    if not view.elements:
        return view.strides if sizes == view.sizes else row_major(sizes).strides
    strides = [1] * len(sizes)
    at = len(sizes) - 1
    for length, step in _runs(view):
        done = 1
        while at >= 0 and (done < length or sizes[at] == 1):
            strides[at] = done * step
            done *= sizes[at]
            at -= 1
        if done != length:
            return None
    return tuple(strides)


def _runs(view: View) -> list[tuple[int, int]]:
    """Length and stride of each stretch of dimensions that one step walks through, the innermost first."""
    runs: list[tuple[int, int]] = []
    for size, stride in reversed(list(zip(view.sizes, view.strides, strict=True))):
        length, step = runs[-1] if runs else (0, 0)
        if runs and (size == 1 or stride == length * step):
            runs[-1] = length * size, step
        else:
            runs.append((size, stride))
    return runs


def row_major(sizes: Sequence[int]) -> View:
    """Elements without gaps, the last dimension the fastest; an empty dimension counts as one of size 1.

    Raises:
        RuntimeError: a negative size.
    """
    return without_gaps(sizes, range(len(sizes) - 1, -1, -1))


def without_gaps(sizes: Sequence[int], order: Iterable[int]) -> View:
    """As :func:`row_major`, with the dimensions in another order, the fastest first."""
    if min(sizes, default=0) < 0:
        raise RuntimeError(f"sizes are not negative, as in {list(sizes)}")
    strides, step = [1] * len(sizes), 1
    for dim in order:
        strides[dim] = step
        step *= max(sizes[dim], 1)
    return View(0, tuple(sizes), tuple(strides))


# ---------------------------------------------------------------- a part of the elements


def selected(view: View, dim: int, index: int) -> View:
    """One place of a dimension, which goes."""
    _require_dimensions(view, "select", IndexError)
    at = wrapped(dim, len(view.sizes))
    if not -view.sizes[at] <= index < view.sizes[at]:
        raise IndexError(f"index {index} is out of range for dimension {at} of size {view.sizes[at]}")
    offset = view.offset + index % view.sizes[at] * view.strides[at]
    return View(offset, view.sizes[:at] + view.sizes[at + 1 :], view.strides[:at] + view.strides[at + 1 :])


def sliced(view: View, dim: int, start: int | None, end: int | None, step: int) -> View:
    """Every ``step``-th place of a dimension from ``start`` to before ``end``, both cut to what is there."""
    _require_dimensions(view, "slice", IndexError)
    at = wrapped(dim, len(view.sizes))
    if step <= 0:
        raise RuntimeError(f"a slice takes a positive step, not {step}")
    first, last, _ = slice(start, end).indices(view.sizes[at])
    return _stretch(view, at, first, len(range(first, last, step)), step)


def _stretch(view: View, at: int, first: int, length: int, step: int = 1) -> View:
    sizes = (*view.sizes[:at], length, *view.sizes[at + 1 :])
    strides = (*view.strides[:at], view.strides[at] * step, *view.strides[at + 1 :])
    return View(view.offset + first * view.strides[at], sizes, strides)


def split_evenly(view: View, length: int, dim: int) -> list[View]:
    """Stretches of ``length`` places of a dimension; the last one may be shorter."""
    _require_dimensions(view, "split", RuntimeError)
    at = wrapped(dim, len(view.sizes))
    size = view.sizes[at]
    if length < 0 or (length == 0 and size):
        raise RuntimeError(f"{size} places are not split into stretches of {length}")
    firsts = range(0, size, length) if size else [0]
    return [_stretch(view, at, first, min(length, size - first)) for first in firsts]


def split_into(view: View, lengths: Sequence[int], dim: int) -> list[View]:
    """Stretches of these lengths, which make up the whole dimension."""
    _require_dimensions(view, "split", RuntimeError)
    at = wrapped(dim, len(view.sizes))
    if min(lengths, default=0) < 0 or sum(lengths) != view.sizes[at]:
        raise RuntimeError(f"stretches of {list(lengths)} do not make up the {view.sizes[at]} places of dimension {at}")
    return [_stretch(view, at, sum(lengths[:number]), length) for number, length in enumerate(lengths)]


def unbound(view: View, dim: int) -> list[View]:
    """Each place of a dimension."""
    _require_dimensions(view, "unbind", IndexError)
    at = wrapped(dim, len(view.sizes))
    return [selected(view, at, index) for index in range(view.sizes[at])]


def diagonal_of(view: View, distance: int, dim1: int, dim2: int) -> View:
    """The diagonal ``distance`` above the main one of two dimensions, which becomes the last dimension."""
    ndim = len(view.sizes)
    first, second = wrapped(dim1, ndim), wrapped(dim2, ndim)
    if first == second:
        raise RuntimeError(f"a diagonal lies in two dimensions, not twice in {first}")
    above, below = max(distance, 0), max(-distance, 0)
    length = max(min(view.sizes[first] - below, view.sizes[second] - above), 0)
    offset = view.offset + (below * view.strides[first] + above * view.strides[second] if length else 0)
    kept = [dim for dim in range(ndim) if dim not in (first, second)]
    sizes = (*(view.sizes[dim] for dim in kept), length)
    strides = (*(view.strides[dim] for dim in kept), view.strides[first] + view.strides[second])
    return View(offset, sizes, strides)


def unfolded(view: View, dim: int, size: int, step: int) -> View:
    """Windows of ``size`` places of a dimension, ``step`` apart; what lies in a window is the last dimension."""
    at = wrapped(dim, len(view.sizes))
    there = view.sizes[at] if view.sizes else 1
    if not 0 <= size <= there or step <= 0:
        raise RuntimeError(f"there are no windows of {size}, {step} apart, in {there} places")
    if not view.sizes:
        return View(view.offset, (size,), (1,))
    windows = _stretch(view, at, 0, (there - size) // step + 1, step)
    return View(view.offset, (*windows.sizes, size), (*windows.strides, view.strides[at]))


def anywhere(sizes: Sequence[int], strides: Sequence[int], offset: int) -> View:
    """A view of any kind."""
    if len(sizes) != len(strides):
        raise RuntimeError(f"{len(sizes)} sizes and {len(strides)} strides are given")
    if min((*sizes, *strides, offset)) < 0:
        raise RuntimeError(f"sizes, strides and the offset are not negative: {list(sizes)}, {list(strides)}, {offset}")
    return View(offset, tuple(sizes), tuple(strides))
