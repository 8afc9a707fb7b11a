"""How windows slide over a field: what a convolution's arguments ask for, and which taps join a place with which.

A window's *taps* are the positions of its kernel. Under tap ``k``, site ``q`` holds the field's position
``q * stride - padding + k * dilation``. Turned round, position ``i`` lies under tap ``k`` of a site if
``i + padding - k * dilation`` is a multiple of the stride. So positions of one *phase*, ``i % stride``, share their
taps: with ``d = gcd(stride, dilation)`` every ``stride / d``-th one, from the first that solves the congruence, or
none. In either direction a place ``q`` (site ``q``, or the q-th position of a phase) then reads
``begin + q * step + j * span`` under its j-th tap, and no product is in vain.

Suffixes: ``_S`` one entry for each of depth, height and width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Ints
from ..common.launch import require_served
from ..common.windows import NO_WINDOW, Window


class Walk(NamedTuple):
    """How one dimension is walked, a constant of a kernel; of either direction.

    Attributes:
        kernel: taps of all phases.
        step: how far what is read moves from place to place.
        span: how far it moves from tap to tap.
        phases: how many there are; place ``q`` of a phase is the position ``q * phases + phase``.
        period: the distance of a phase's taps.
        ahead: what the first place reads under tap 0, before division by ``phases``.
        dilation: of the window.
        common: the greatest common divisor of phases and dilation.
        inverse: of ``dilation / common``, modulo ``period``.
    """

    kernel: int
    step: int
    span: int
    phases: int
    period: int
    ahead: int
    dilation: int
    common: int
    inverse: int

    @property
    def most_taps(self) -> int:
        """No phase has more."""
        return -(-self.kernel // self.period)


@triton.jit
def taps_of(phase: tl.tensor, WALK_S: tl.constexpr, S: tl.constexpr) -> tuple[tl.tensor, ...]:
    """First tap of a phase in dimension S, how many taps there are, and what place 0 reads under the first."""
    PHASES: tl.constexpr = WALK_S[S][3]
    PERIOD: tl.constexpr = WALK_S[S][4]
    COMMON: tl.constexpr = WALK_S[S][7]
    ahead = phase + WALK_S[S][5]
    first = ahead // COMMON * WALK_S[S][8] % PERIOD
    count = tl.where(ahead % COMMON == 0, tl.maximum(WALK_S[S][0] - first + (PERIOD - 1), 0) // PERIOD, 0)
    # Exact where there is a tap, so that it does not matter which way a negative quotient is rounded.
    return first, count, (ahead - first * WALK_S[S][6]) // PHASES


@triton.jit
def all_taps_of(phase_S: tl.tuple, WALK_S: tl.constexpr) -> tuple[tl.tuple, ...]:
    """As :func:`taps_of`, in all dimensions."""
    first_d, count_d, begin_d = taps_of(phase_S[0], WALK_S, 0)
    first_h, count_h, begin_h = taps_of(phase_S[1], WALK_S, 1)
    first_w, count_w, begin_w = taps_of(phase_S[2], WALK_S, 2)
    return (first_d, first_h, first_w), (count_d, count_h, count_w), (begin_d, begin_h, begin_w)


@triton.jit
def read_in(q: tl.tensor, j: tl.tensor, begin: tl.tensor, WALK_S: tl.constexpr, S: tl.constexpr) -> tl.tensor:
    """The position that place ``q`` reads under the j-th tap of its phase in dimension S; it need not exist."""
    if WALK_S[S][0] == 1 and WALK_S[S][3] == 1:
        # Constants only, so that neighbouring places stay neighbours to the compiler.
        position = q * WALK_S[S][1] + WALK_S[S][5]
    else:
        position = begin + q * WALK_S[S][1] + j * WALK_S[S][2]
    return position


def walk_of(window: Window, *, to_field: bool) -> Walk:
    """The window as sites read the field, or as the field reads sites."""
    kernel, stride, padding, dilation = window
    if not to_field:
        return Walk(kernel, stride, dilation, 1, 1, -padding, dilation, 1, 0)
    common = math.gcd(stride, dilation)
    period = stride // common
    inverse = pow(dilation // common, -1, period) if period > 1 else 0
    return Walk(kernel, 1, -(dilation // common), stride, period, padding, dilation, common, inverse)


class Sliding(NamedTuple):
    """What a call's arguments ask for; ``out_S`` are the spatial sizes of the forward result."""

    windows: tuple[Window, ...]
    out_S: Ints
    transposed: bool
    groups: int

    def stays_inside(self) -> bool:
        """Whether no window reaches beyond the field."""
        return not any(window.padding for window in self.windows)

    def is_pointwise(self) -> bool:
        """Whether every site holds one position, its own."""
        return all(window == NO_WINDOW._replace(dilation=window.dilation) for window in self.windows)


def sliding(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Sliding:
    """Check a convolution's arguments.

    Raises:
        ValueError: arguments that eager refuses.
        TypeError: an input and a weight of two types.
        NotImplementedError: types, or numbers of dimensions, that are not served.
    """
    require_served(x, weight, dtypes=FLOATS)
    spatial = weight.ndim - 2
    if spatial not in (1, 2, 3):
        raise NotImplementedError(f"a convolution of {spatial} dimensions is not served")
    if x.ndim != weight.ndim or x.dtype != weight.dtype:
        error = TypeError if x.ndim == weight.ndim else ValueError
        raise error(f"{x.dtype} {list(x.shape)} does not go with {weight.dtype} {list(weight.shape)}")
    absent = 3 - spatial
    stride_S = (1,) * absent + _each(stride, spatial, "stride", 1)
    padding_S = (0,) * absent + _each(padding, spatial, "padding", 0)
    dilation_S = (1,) * absent + _each(dilation, spatial, "dilation", 1)
    extra_S = (0,) * absent + _each(output_padding, spatial, "output_padding", 0)
    kernel_S = (1,) * absent + tuple(weight.shape[2:])
    windows = tuple(map(Window, kernel_S, stride_S, padding_S, dilation_S))
    _require_channels(x, weight, transposed, groups)
    size_S = (1,) * absent + tuple(x.shape[2:])
    out_S = _outputs(size_S, windows, extra_S if transposed else None)
    return Sliding(windows, out_S, transposed, groups)


def _each(given: Sequence[int], spatial: int, name: str, least: int) -> Ints:
    if len(given) not in (1, spatial) or min(given) < least:
        raise ValueError(f"{name} must be {spatial} numbers of at least {least}, not {list(given)}")
    return tuple(given) * spatial if len(given) == 1 else tuple(given)


def _require_channels(x: torch.Tensor, weight: torch.Tensor, transposed: bool, groups: int) -> None:
    if groups < 1 or weight.shape[0] % groups or 0 in weight.shape:
        raise ValueError(f"{groups} groups do not fit a weight of {list(weight.shape)}")
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if x.shape[1] != expected:
        raise ValueError(f"a weight of {list(weight.shape)} needs {expected} channels, not {x.shape[1]}")


def _outputs(size_S: Ints, windows: Sequence[Window], extra_S: Ints | None) -> Ints:
    """Spatial sizes of the result; ``extra_S`` are a transposed convolution's output paddings."""
    if extra_S is None:
        sizes = tuple(
            (size + 2 * window.padding - window.extent) // window.stride + 1
            for size, window in zip(size_S, windows, strict=True)
        )
    else:
        if any(more >= max(w.stride, w.dilation) for more, w in zip(extra_S, windows, strict=True)):
            raise ValueError(f"output_padding must be less than stride or dilation, not {list(extra_S)}")
        sizes = tuple(
            (size - 1) * window.stride - 2 * window.padding + window.extent + more
            for size, window, more in zip(size_S, windows, extra_S, strict=True)
        )
    if min(sizes) < 1:
        raise ValueError(f"windows {windows} do not fit an input of {list(size_S)}")
    return sizes
