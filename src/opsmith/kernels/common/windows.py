"""Sliding windows over volumes: their sizes, what eager accepts, and where one begins and ends in a kernel.

Three kinds. A strided window of output ``o`` holds the positions ``o * stride - padding + k * dilation`` for k below
the kernel size; those outside the input do not count. An adaptive one holds the positions from
``floor(o * size / out)`` to ``ceil((o + 1) * size / out)``. A fractional one holds as many as the kernel size, from
somewhere between one position before and one after ``o * (size - kernel) / (out - 1)``.

A backward pass turns the question round: which windows hold this position? They are neighbours, so each input
position gathers from a few outputs, and nothing is added atomically.

Suffixes: ``_S`` one entry for each of depth, height and width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import triton
import triton.language as tl

from .indexing import Ints

#: Longest loop over a window that is unrolled: 27 is 3 x 3 x 3.
UNROLLED = 27


class Window(NamedTuple):
    """The windows along one dimension, a constant of a kernel.

    A kernel size of 0 stands for adaptive ones, a stride of 0 for fractional ones.
    """

    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def extent(self) -> int:
        """From the first position to behind the last."""
        return (self.kernel - 1) * self.dilation + 1


#: Of a dimension that a volume lacks, and of every dimension of an adaptive op.
NO_WINDOW, ADAPTIVE = Window(1, 1, 0, 1), Window(0, 1, 0, 1)


@triton.jit
def window_of(o: tl.tensor, size_S: tl.tuple, out_S: tl.tuple, WINDOW_S: tl.constexpr, S: tl.constexpr) -> tl.tuple:
    """First position of output ``o``'s window in dimension S, perhaps before the input, and that behind its last."""
    if WINDOW_S[S][0] == 0:
        first, behind = o * size_S[S] // out_S[S], ((o + 1) * size_S[S] + out_S[S] - 1) // out_S[S]
    else:
        first = o * WINDOW_S[S][1] - WINDOW_S[S][2]
        behind = first + ((WINDOW_S[S][0] - 1) * WINDOW_S[S][3] + 1)
    return first, behind


@triton.jit
def first_holder(i: tl.tensor, size_S: tl.tuple, out_S: tl.tuple, WINDOW_S: tl.constexpr, S: tl.constexpr) -> tl.tensor:
    """The first output of dimension S whose window reaches position ``i``."""
    if WINDOW_S[S][0] == 0:
        first = i * out_S[S] // size_S[S]
    elif WINDOW_S[S][1] == 0:
        # One more on either side leaves room for the rounding of the window's beginning.
        behind = tl.maximum(i - (WINDOW_S[S][0] + 2), 0)
        first = behind * (out_S[S] - 1) // tl.maximum(size_S[S] - WINDOW_S[S][0], 1)
    else:
        # The last window that ends before i, or -1, and one more.
        before = tl.maximum(i + (WINDOW_S[S][2] - (WINDOW_S[S][0] - 1) * WINDOW_S[S][3] - 1), -1)
        first = (before + WINDOW_S[S][1]) // WINDOW_S[S][1]
    return first


@triton.jit
def held_position(
    k: tl.tensor, o: tl.tensor, size_S: tl.tuple, out_S: tl.tuple, WINDOW_S: tl.constexpr, S: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """Position ``k`` of the window of output ``o`` in dimension S, and whether the input has it."""
    first, behind = window_of(o, size_S, out_S, WINDOW_S, S)
    if WINDOW_S[S][0] == 0:
        i = first + k
        inside = i < behind
    else:
        i = first + k * WINDOW_S[S][3]
        inside = (i >= 0) & (i < size_S[S])
    return i, inside


@triton.jit
def first_inside(o: tl.tensor, size_S: tl.tuple, out_S: tl.tuple, WINDOW_S: tl.constexpr, S: tl.constexpr) -> tl.tensor:
    """The first position of the window of output ``o`` in dimension S that the input has."""
    first, _behind = window_of(o, size_S, out_S, WINDOW_S, S)
    if WINDOW_S[S][2] > 0:
        first += (tl.maximum(-first, 0) + (WINDOW_S[S][3] - 1)) // WINDOW_S[S][3] * WINDOW_S[S][3]
    return first


@triton.jit
def place_in_box(k: tl.tensor, BOX_S: tl.constexpr) -> tuple[tl.tensor, ...]:
    """Depth, height and width of element ``k`` of a row-major box."""
    return k // (BOX_S[1] * BOX_S[2]), k // BOX_S[2] % BOX_S[1], k % BOX_S[2]


def most_held(size: int, out: int, window: Window) -> int:
    """No window holds more positions of a dimension than this."""
    return window.kernel or _most_covered(size, out)


def most_holders(size: int, out: int, window: Window) -> int:
    """No position of a dimension lies in more windows than this."""
    if window.kernel == 0:
        return _most_covered(out, size)
    if window.stride == 0:
        return min(-(-(window.kernel + 4) * (out - 1) // max(size - window.kernel, 1)) + 1, out)
    return min(-(-window.extent // window.stride), out)


def _most_covered(size: int, parts: int) -> int:
    """Most positions of ``size`` that one of ``parts`` adaptive windows holds."""
    return min(-(-size // parts) + (1 if size % parts else 0), size)


def spatial_numbers(given: Sequence[int], spatial: int, name: str, absent: int) -> Ints:
    """One number, or one for each spatial dimension, as three numbers.

    Raises:
        ValueError: another count.
    """
    if len(given) not in (1, spatial):
        raise ValueError(f"{name} must be one number or {spatial}, not {list(given)}")
    numbers = tuple(given) * spatial if len(given) == 1 else tuple(given)
    return (absent,) * (3 - spatial) + numbers


def pooling_windows(
    spatial: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> tuple[Window, ...]:
    """Windows of a pooling op, for each of three dimensions; without a stride they lie side by side.

    Raises:
        ValueError: sizes that eager refuses.
    """
    kernel_S = spatial_numbers(kernel_size, spatial, "kernel_size", 1)
    stride_S = spatial_numbers(stride, spatial, "stride", 1) if stride else kernel_S
    padding_S = spatial_numbers(padding, spatial, "padding", 0)
    dilation_S = spatial_numbers(dilation, spatial, "dilation", 1)
    windows = tuple(map(Window, kernel_S, stride_S, padding_S, dilation_S))
    if any(min(window.kernel, window.stride, window.dilation) < 1 for window in windows):
        raise ValueError("kernel size, stride and dilation must be greater than zero")
    if any(not 0 <= window.padding <= window.extent // 2 for window in windows):
        raise ValueError(f"padding must be at most half of the kernel's extent, not {list(padding)}")
    return windows


def adaptive_windows(spatial: int) -> tuple[Window, ...]:
    """Windows that divide the input evenly among the outputs, for each of three dimensions."""
    return (NO_WINDOW,) * (3 - spatial) + (ADAPTIVE,) * spatial


def output_sizes(size_S: Ints, windows: Sequence[Window], *, ceil_mode: bool) -> Ints:
    """How many windows there are: whole ones, or in ceil mode all that begin in the input or its left padding.

    Raises:
        ValueError: not a single one.
    """
    sizes = tuple(_count(size, window, ceil_mode=ceil_mode) for size, window in zip(size_S, windows, strict=True))
    if min(sizes) < 1:
        raise ValueError(f"windows of {[window.kernel for window in windows]} do not fit an input of {list(size_S)}")
    return sizes


def _count(size: int, window: Window, *, ceil_mode: bool) -> int:
    last = size + 2 * window.padding - window.extent
    count = (last + (window.stride - 1 if ceil_mode else 0)) // window.stride + 1
    begins_behind = (count - 1) * window.stride >= size + window.padding
    return count - 1 if ceil_mode and begins_behind else count
