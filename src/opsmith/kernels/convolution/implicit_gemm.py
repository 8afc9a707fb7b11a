"""Convolution as an implicit GEMM: a matrix product whose right operand is gathered as it is read.

``y_OP = w_OK @ x_KP``: rows ``O`` are the channels of the result, columns ``P`` its positions over the whole batch, and
the sum runs over ``K``, the taps times the channels of the other side. No matrix of windows (im2col) is ever written: a
program works out what its positions read under a tap (sliding.py), once for all channels. Compulsory traffic: x, w and
y once.

Split-K: where the result has too few tiles to fill the device, programs write partial sums, and a second launch adds
them up.

Suffixes: as above, ``_S`` one entry for each of depth, height and width.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Ints, converted
from ..common.lanes import load_along_columns, store_along_columns
from ..common.launch import (
    INTERPRETED,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    multiprocessors,
    pdl_prologue,
)
from ..common.tuning import Family, Work, size_class
from ..common.type_rules import HALF
from ..common.windows import place_in_box
from ..matmul.matmul import (
    FEW_STEPS,
    GROUP,
    MULTIPROCESSORS,
    SHARED_BYTES,
    Term,
    combine,
    divisor,
    fewest_splits,
    float32_precision,
    multiply_type,
)
from ..matmul.product_tiles import dot_tf32x3, known_multiple, multiply_add, tile_origin
from ..matmul.tf32x3 import parts_fit
from .convolution_operands import (
    CHANNELS,
    Filter,
    Operand,
    Sides,
    channels_last,
    filter_of,
    kernel_sizes,
    operand_of,
    places_side_by_side,
    reach_type,
    relaid_filter,
    side_by_side,
    with_channels_side_by_side,
    with_flat_space,
)
from .kernel_rows import kernel_rows, reads_kernel_rows
from .sliding import Sliding, Walk, all_taps_of, read_in, walk_of

#: Up to so many rows a product reads each number too rarely to pay for a copy of it.
FEW_ROWS = 128
#: With fewer rows or channels factors are not split beforehand.
FEWEST_TO_SPLIT = 64
#: So few steps load, multiply and write one after the other; only another program overlaps with them.
FEWEST_STEPS = 2
#: Whether a loop's bound has to be known beforehand: see launch.loop_bound.
_BOUND_IS_CONSTANT = tl.constexpr(INTERPRETED)


@triton.jit
def place_in_space(q: tl.tensor, space_S: tl.tuple) -> tuple[tl.tensor, ...]:
    """Depth, height and width of place ``q``."""
    return q // (space_S[2] * space_S[1]), q // space_S[2] % space_S[1], q % space_S[2]


@triton.jit
def places_of(p: tl.tensor, space: tl.tensor, space_S: tl.tuple, DIMS: tl.constexpr) -> tuple[tl.tensor, ...]:
    """Of places numbered over the batch: the images, the places in them, and those' depth, height and width as rows.

    DIMS: 1 for lines, 2 for planes, 3 for volumes. The number of places in an image comes along, since of a product the
    compiler does not know whether 16 divides it.
    """
    n, q = p // space, p % space
    if DIMS == 1:
        d, h, w = q * 0, q * 0, q
    elif DIMS == 2:
        d, h, w = q * 0, q // space_S[2], q % space_S[2]
    else:
        d, h, w = place_in_space(q, space_S)
    return n, q, (d[None, :], h[None, :], w[None, :])


@triton.jit
def read_offset(
    q_S: tl.tuple,
    j_S: tl.tuple,
    begin_S: tl.tuple,
    size_S: tl.tuple,
    strides_S: tl.tuple,
    WALK_S: tl.constexpr,
    INSIDE: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Offset of what places ``q_S`` read under taps ``j_S``, and whether it exists; what broadcasts stays narrow."""
    d = read_in(q_S[0], j_S[0], begin_S[0], WALK_S, 0)
    h = read_in(q_S[1], j_S[1], begin_S[1], WALK_S, 1)
    w = read_in(q_S[2], j_S[2], begin_S[2], WALK_S, 2)
    if INSIDE:
        exists = tl.full([1, 1], True, tl.int1)
    else:
        exists = (d >= 0) & (d < size_S[0]) & (h >= 0) & (h < size_S[1]) & (w >= 0) & (w < size_S[2])
    return d * strides_S[0] + h * strides_S[1] + w * strides_S[2], exists


@triton.jit
def tap_offset(j_S: tl.tuple, first_S: tl.tuple, strides_S: tl.tuple, WALK_S: tl.constexpr) -> tl.tensor:
    """Offset of the weights of a phase's taps ``j_S``."""
    d, h, w = j_S[0] * WALK_S[0][4], j_S[1] * WALK_S[1][4], j_S[2] * WALK_S[2][4]
    return (first_S[0] + d) * strides_S[0] + (first_S[1] + h) * strides_S[1] + (first_S[2] + w) * strides_S[2]


@triton.jit
def terms_of(
    step: tl.tensor,
    k: tl.tensor,
    C: tl.tensor,
    MIXED: tl.constexpr,
    HAS_ONE_TAP: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """The tap of a step, that of each of its terms, and their channels; if MIXED, the first is a column of taps."""
    if MIXED:
        tap_K, c = (step * BLOCK_K + k) // C, (step * BLOCK_K + k) % C
        tap = tap_K[:, None]
    elif HAS_ONE_TAP:
        tap, tap_K, c = step * 0, k * 0, step * BLOCK_K + k
    else:
        # Blocks of channels under one tap.
        blocks = tl.cdiv(C, BLOCK_K)
        c, tap = step % blocks * BLOCK_K + k, step // blocks
        tap_K = k * 0 + tap
    return tap, tap_K, c


@triton.jit
def implicit_gemm_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    w_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    bias_stride: tl.tensor,
    O: tl.tensor,  # noqa: E741 - A suffix of this file.
    P: tl.tensor,
    C: tl.tensor,
    space: tl.tensor,
    space_S: tl.tuple,
    x_strides_NGC: tl.tuple,
    x_strides_S: tl.tuple,
    x_size_S: tl.tuple,
    w_strides_GRC: tl.tuple,
    w_strides_S: tl.tuple,
    out_strides_NGC: tl.tuple,
    out_strides_S: tl.tuple,
    out_size_S: tl.tuple,
    x_low: tl.tensor,
    w_low: tl.tensor,
    split_numel: tl.tensor,
    steps: tl.tensor,
    WALK_S: tl.constexpr,
    PHASES_S: tl.constexpr,
    DIMS: tl.constexpr,
    INSIDE: tl.constexpr,
    MIXED: tl.constexpr,
    C_VEC: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
    INDEX: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """One tile of one group, phase and split; a step sums channels under one tap, or, if MIXED, under several.

    ``x_low``, ``w_low``: how far behind high parts of float32 low ones lie, if factors are in parts. C_VEC: of how
    many channels that lie side by side all or none are read; 1 where 16 divides their number.
    """
    pdl_prologue()
    C = known_multiple(C, C_VEC)
    first_O, first_P = tile_origin(O, P, GROUP, BLOCK_O, BLOCK_P, INDEX)
    group = tl.program_id(1).to(INDEX)
    PHASES: tl.constexpr = PHASES_S[0] * PHASES_S[1] * PHASES_S[2]
    HAS_ONE_TAP: tl.constexpr = PHASES * WALK_S[0][0] * WALK_S[1][0] * WALK_S[2][0] == 1
    phase_S = place_in_box(tl.program_id(2) % PHASES, PHASES_S)
    split = (tl.program_id(2) // PHASES).to(INDEX)
    first_S, count_S, begin_S = all_taps_of(phase_S, WALK_S)
    taps = count_S[0] * count_S[1] * count_S[2]
    # A phase without taps divides by its counts, too.
    taps_S = (count_S[0], tl.maximum(count_S[1], 1), tl.maximum(count_S[2], 1))

    o, p = first_O + tl.arange(0, BLOCK_O), first_P + tl.arange(0, BLOCK_P)
    n, q, q_S = places_of(p, space, space_S, DIMS)
    x_ptr_P = x_ptr + group * x_strides_NGC[1] + (n * x_strides_NGC[0])[None, :]
    w_ptr_O = w_ptr + group * w_strides_GRC[0] + (o * w_strides_GRC[1])[:, None]

    k = tl.arange(0, BLOCK_K).to(INDEX)
    all_steps = tl.cdiv(taps * C, BLOCK_K) if MIXED else taps * tl.cdiv(C, BLOCK_K)
    # See product_tiles.py.
    last = steps if _BOUND_IS_CONSTANT else tl.maximum(tl.minimum(steps, all_steps - split * steps), 1)
    y_OP = tl.zeros([BLOCK_O, BLOCK_P], ACCUMULATE)
    for i in range(last):
        step = split * steps + i
        tap, tap_K, c = terms_of(step, k, C, MIXED, HAS_ONE_TAP, BLOCK_K)
        j_S = place_in_space(tap, taps_S)
        offset, exists = read_offset(q_S, j_S, begin_S, x_size_S, x_strides_S, WALK_S, INSIDE)
        in_sum = (c < C) & (tap_K < taps)
        x_mask = exists & (p < P)[None, :] & in_sum[:, None]
        x_ptr_KP = x_ptr_P + offset + (c * x_strides_NGC[2])[:, None]
        x_KP = load_along_columns(x_ptr_KP, x_mask)
        w_offset = tap_offset(place_in_space(tap_K, taps_S), first_S, w_strides_S, WALK_S) + c * w_strides_GRC[2]
        w_ptr_OK, w_mask = w_ptr_O + w_offset[None, :], (o < O)[:, None] & in_sum[None, :]
        w_OK = tl.load(w_ptr_OK, mask=w_mask, other=0)
        if x_low is not None:
            x_low_KP = load_along_columns(x_ptr_KP + x_low, x_mask)
            w_low_OK = tl.load(w_ptr_OK + w_low, mask=w_mask, other=0)
            y_OP += dot_tf32x3(w_OK, w_low_OK, x_KP, x_low_KP)
        else:
            y_OP = multiply_add(w_OK, x_KP, y_OP, MULTIPLY, PRECISION)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + (group * O + o) * bias_stride, mask=o < O, other=0)
        y_OP += bias.to(ACCUMULATE)[:, None]

    mask = (o < O)[:, None] & (p < P)[None, :]
    out_ptr += split * split_numel + group * out_strides_NGC[1]
    out_ptr_OP = out_ptr + (n * out_strides_NGC[0])[None, :] + (o * out_strides_NGC[2])[:, None]
    if PHASES > 1:
        d, h, w = (
            q_S[0] * PHASES_S[0] + phase_S[0],
            q_S[1] * PHASES_S[1] + phase_S[1],
            q_S[2] * PHASES_S[2] + phase_S[2],
        )
        out_ptr_OP += d * out_strides_S[0] + h * out_strides_S[1] + w * out_strides_S[2]
        mask = mask & (d < out_size_S[0]) & (h < out_size_S[1]) & (w < out_size_S[2])
    else:
        # The result has no gaps.
        out_ptr_OP += (q * out_strides_S[2])[None, :]
    store_along_columns(out_ptr_OP, converted(y_OP, out_ptr.dtype.element_ty), mask)


def dimensions_of(space_S: Ints) -> int:
    """1 for lines, 2 for planes, 3 for volumes."""
    return 1 if space_S[:2] == (1, 1) else 2 if space_S[0] == 1 else 3


class GemmTile(NamedTuple):
    """Block sizes and the launch options that go with them."""

    o: int
    p: int
    k: int
    warps: int
    stages: int


class GemmPlan(NamedTuple):
    """A tile, how many programs share the terms of each, and whether factors are split into TF32 numbers beforehand."""

    o: int
    p: int
    k: int
    warps: int
    stages: int
    splits: int
    beforehand: int = 0


def dot_precision(dtype: torch.dtype, terms: int) -> str:
    """How tiles are multiplied for sums of so many terms.

    TF32 is allowed in convolutions unless somebody forbids it, and cuDNN takes it for some shapes only: float32 is
    float32 here.
    """
    return float32_precision("ieee", terms) if dtype == torch.float32 else "ieee"


def feeds_tensor_cores(dtype: torch.dtype, precision: str) -> bool:
    """Whether products run on tensor cores, which wait for their operands."""
    return compute_dtype(dtype) != dtype or precision != "ieee"


def convolve(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rule: Sliding,
    *,
    to_field: bool,
) -> None:
    """Write the sum of ``x`` times ``weight`` under all taps, plus ``bias``, into the dense ``out``.

    Args:
        out: with all sizes right, row-major or channels-last.
        x: the other side.
        weight: of shape (site channels, field channels / groups, *kernel).
        bias: one number for each channel of ``out``, or None.
        rule: the windows.
        to_field: whether ``out`` is the field, and ``x`` the sites.
    """
    sides = Sides(rule.groups, weight.shape[0] // rule.groups, weight.shape[1])
    precision = _precision(x, sides, rule, to_field=to_field)
    if not to_field and reads_kernel_rows(x, rule):
        operand, w, rule = kernel_rows(x, weight, rule, out.shape[-1])
        slid = _slid(out, 1, rule, to_field=False)
        plan = _plan(slid, operand.channels, "channels", precision)
        _launch_product(slid, Gathering(operand, w, precision), bias, rule, plan)
        return
    operand = operand_of(x, sides.groups)
    is_fed = _is_fed(operand, rule, precision)
    channels = triton.cdiv(operand.channels, CHANNELS) * CHANNELS if is_fed else operand.channels
    lie = "channels" if is_fed or operand.strides_NGC[2] == 1 else "places"
    slid = _slid(out, sides.groups, rule, to_field=to_field)
    plan = _plan(slid, channels, lie, precision)
    product = gathering(operand, weight, sides, rule, precision, to_field=to_field, in_parts=bool(plan.beforehand))
    _launch_product(slid, product, bias, rule, plan)


def _is_fed(operand: Operand, rule: Sliding, precision: str) -> bool:
    """Whether a product reads channels side by side, of a copy if need be, so that tensor cores do not wait."""
    if not feeds_tensor_cores(operand.tensor.dtype, precision) or operand.channels < CHANNELS:
        return False
    return not (rule.is_pointwise() and places_side_by_side(operand) and precision != "tf32x3")


def _precision(x: torch.Tensor, sides: Sides, rule: Sliding, *, to_field: bool) -> str:
    """How a product multiplies: float32 is not split for tensor cores where reading in their order costs more."""
    summed, rows = (sides.sites, sides.field) if to_field else (sides.field, sides.sites)
    precision = dot_precision(x.dtype, summed * math.prod(kernel_sizes(rule.windows)))
    lies_across = rule.is_pointwise() and places_side_by_side(operand_of(x, sides.groups))
    if precision == "tf32x3" and (summed < CHANNELS or (lies_across and rows <= FEW_ROWS)):
        return "ieee"
    return precision


class Gathering(NamedTuple):
    """The operands of a product as it reads them, and how it multiplies."""

    x: Operand
    w: Filter
    precision: str


def gathering(
    operand: Operand,
    weight: torch.Tensor,
    sides: Sides,
    rule: Sliding,
    precision: str,
    *,
    to_field: bool,
    in_parts: bool = False,
) -> Gathering:
    """The operands, copied where tensor cores would wait for them otherwise, or ``in_parts``."""
    w = filter_of(weight, sides, to_field=to_field)
    if in_parts:
        operand = channels_last(operand, sides.groups, in_parts=True)
        w = relaid_filter(w, sides, kernel_sizes(rule.windows), to_field=to_field, in_parts=True)
        return Gathering(operand, w, precision)
    if not _is_fed(operand, rule, precision):
        return Gathering(operand, w, precision)
    summed = operand.channels
    if not side_by_side(operand):
        operand = channels_last(operand, sides.groups)
    columns_lie_well = w.strides_GRC[2] == 1 and w.strides_GRC[1] % CHANNELS == 0 and summed % CHANNELS == 0
    if not columns_lie_well:
        w = relaid_filter(w, sides, kernel_sizes(rule.windows), to_field=to_field)
    return Gathering(operand, w, precision)


def shared_copy(x: torch.Tensor, weight: torch.Tensor, rule: Sliding) -> torch.Tensor:
    """What both gradients read of the result's gradient: itself, or the copy that either of them would make."""
    sides = Sides(rule.groups, weight.shape[0] // rule.groups, weight.shape[1])
    operand = operand_of(x, sides.groups)
    is_read_as_it_is = side_by_side(operand) or (rule.is_pointwise() and places_side_by_side(operand))
    precision = dot_precision(x.dtype, operand.batch * math.prod(operand.size_S))
    if not feeds_tensor_cores(x.dtype, precision) or operand.channels % CHANNELS or is_read_as_it_is or x.numel() == 0:
        return x
    return with_channels_side_by_side(x, sides.groups)


def _is_mixed(channels: int) -> bool:
    """Whether a step sums under several taps; the interpreter's steps cost the same whatever their size."""
    return channels < CHANNELS or (INTERPRETED and channels < 64)


class Slid(NamedTuple):
    """A result as products make it, one for each group and phase.

    Attributes:
        y: the result.
        groups: of channels.
        to_field: whether it is the field.
        walks: by dimension.
        space_S: places of a phase.
    """

    y: Operand
    groups: int
    to_field: bool
    walks: tuple[Walk, ...]
    space_S: Ints

    @property
    def phases(self) -> Ints:
        """Phases along each dimension."""
        return tuple(walk.phases for walk in self.walks)

    @property
    def taps(self) -> int:
        """Of the phase that has most."""
        return math.prod(walk.most_taps for walk in self.walks)

    @property
    def columns(self) -> int:
        """Places of a phase over the whole batch."""
        return self.y.batch * math.prod(self.space_S)


def _slid(out: torch.Tensor, groups: int, rule: Sliding, *, to_field: bool) -> Slid:
    y, walks = operand_of(out, groups), tuple(walk_of(window, to_field=to_field) for window in rule.windows)
    space_S = tuple(triton.cdiv(size, walk.phases) for size, walk in zip(y.size_S, walks, strict=True))
    return Slid(y, groups, to_field, walks, space_S)


def _plan(slid: Slid, C: int, lie: str, precision: str) -> GemmPlan:
    """What was measured to be fastest for such products, or else what the rule says."""
    O, P, taps, tensor = slid.y.channels, slid.columns, slid.taps, slid.y.tensor  # noqa: E741
    mixed, others = _is_mixed(C), slid.groups * math.prod(slid.phases)
    tile = product_tile(O, P, others, C * taps if mixed else C, tensor.dtype, precision)
    steps = steps_of(C, taps, tile.k, mixed=mixed)
    if steps <= FEWEST_STEPS and tensor.dtype in HALF:
        tile = tile_of_few_steps(tile)
    programs = triton.cdiv(O, tile.o) * triton.cdiv(P, tile.p) * others
    splits = _splits(programs, steps, tensor.device)
    work = (str(tensor.dtype).removeprefix("torch."), precision, lie, int(mixed), taps, others)
    rule = GemmPlan(*tile, splits)
    if precision == "tf32x3" and splitting_pays(O, P, C, taps, others):
        rule = split_plan(O)
    return IMPLICIT_GEMM.choice((*work, *map(size_class, (O, P, C))), rule, tensor.device)


def splitting_pays(O: int, P: int, C: int, taps: int, others: int) -> bool:  # noqa: E741
    """Whether factors are split beforehand where nothing was measured for such ones.

    Where several taps read each number, and enough rows, and every multiprocessor has a tile: 1.01 to 1.27 times as
    fast on an H200 then, where one tap gains nothing (benchmarks/results/kernels/h200/float32-convolutions).
    """
    plan = split_plan(O)
    tiles = triton.cdiv(O, plan.o) * triton.cdiv(P, plan.p) * others
    return taps > 1 and min(O, C) >= FEWEST_TO_SPLIT and parts_fit(others * P * C) and tiles >= MULTIPROCESSORS


def split_plan(O: int) -> GemmPlan:  # noqa: E741
    """The fastest of those measured for so many rows."""
    return BEFOREHAND[0] if BEFOREHAND[2].o < O else BEFOREHAND[2]


def _launch_product(slid: Slid, product: Gathering, bias: torch.Tensor | None, rule: Sliding, tile: GemmPlan) -> None:
    x, y, out = product.x, slid.y, slid.y.tensor
    space_S = slid.space_S
    if rule.is_pointwise():
        flat = with_flat_space(x), with_flat_space(y)
        if flat[0].size_S == flat[1].size_S:
            x, y = flat
            space_S = y.size_S
    phases = math.prod(slid.phases)
    O, P, C = y.channels, slid.columns, x.channels  # noqa: E741
    mixed = _is_mixed(C)
    steps = steps_of(C, slid.taps, tile.k, mixed=mixed)
    tiles = triton.cdiv(O, tile.o) * triton.cdiv(P, tile.p)
    fewest = fewest_splits(steps * tile.k, out.numel(), out.dtype, product.precision)
    splits = max(min(tile.splits, steps), fewest)
    each = triton.cdiv(steps, splits)
    target = (
        out if splits == 1 else torch.empty((splits, out.numel()), dtype=compute_dtype(out.dtype), device=out.device)
    )
    launch(
        implicit_gemm_kernel,
        (tiles, slid.groups, splits * phases),
        out.device,
        target,
        x.tensor,
        product.w.tensor,
        bias if splits == 1 else None,
        0 if bias is None else bias.stride(0),
        O,
        P,
        C,
        math.prod(space_S),
        space_S,
        x.strides_NGC,
        x.strides_S,
        x.size_S,
        product.w.strides_GRC,
        product.w.strides_S,
        y.strides_NGC,
        (*y.strides_S[:2], with_flat_space(y).strides_S[2]) if phases == 1 else y.strides_S,
        y.size_S,
        x.low,
        product.w.low,
        out.numel(),
        loop_bound(each),
        WALK_S=slid.walks,
        PHASES_S=slid.phases,
        DIMS=dimensions_of(space_S),
        INSIDE=rule.is_pointwise() if slid.to_field else rule.stays_inside(),
        MIXED=mixed,
        C_VEC=divisor(C),
        ACCUMULATE=compute_type(out.dtype),
        MULTIPLY=multiply_type(out.dtype),
        PRECISION=product.precision,
        INDEX=tl.int64 if splits * out.numel() >= 1 << 31 else reach_type(x, y),
        GROUP=GROUP,
        BLOCK_O=tile.o,
        BLOCK_P=tile.p,
        BLOCK_K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if splits > 1:
        _combine(out, target, bias)


def _combine(out: torch.Tensor, partial: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Add up the splits, which lie as ``out`` does."""
    N, C = out.shape[:2]
    space = out.numel() // (N * C)
    step = out.stride(1)
    rows = (N, C, space) if step == space or C == 1 else (1, N * space, C)
    flat = out.as_strided(rows, (rows[1] * rows[2], rows[2], 1))
    term = Term(None, 0, 1)
    if bias is not None:
        term = Term(bias.unsqueeze(1) if rows[1] == C and rows[2] == space else bias, 1, 1)
    combine(flat, partial, term)


def _splits(programs: int, steps: int, device: torch.device) -> int:
    """How many programs share a tile (split-K): one for each multiprocessor, of at least four steps each."""
    if INTERPRETED or steps <= FEW_STEPS or programs * 2 > multiprocessors(device):
        return 1
    return max(min(multiprocessors(device) // programs, steps // 4, 64), 1)


def steps_of(C: int, taps: int, k: int, *, mixed: bool) -> int:
    """Steps of k terms: over channels and taps at once, or over the channels of one tap after the other."""
    return -(-taps * C // k) if mixed else taps * -(-C // k)


def _candidates(work: Work) -> list[GemmPlan]:
    """Tiles no larger than the result that fit a multiprocessor, alone or with the terms split over the device."""
    dtype, precision = str(work[0]), str(work[1])
    mixed, taps, others, O, P, C = map(int, work[3:])  # noqa: E741
    itemsize = {"bfloat16": 2, "float16": 2, "float32": 4}.get(dtype)
    if itemsize is None or (itemsize == 4 and not feeds_tensor_cores(torch.float32, precision)):
        return []
    plans = []
    for o, p, k in itertools.product((16, 32, 64, 128, 256), (32, 64, 128, 256), (16, 32, 64)):
        if o >= max(2 * O, 32) or p >= max(2 * P, 64) or not 1024 <= o * p <= (32768 if itemsize == 2 else 16384):
            continue
        steps = steps_of(C, taps, k, mixed=bool(mixed))
        tiles = triton.cdiv(O, o) * triton.cdiv(P, p) * others
        most_splits = max(min(MULTIPROCESSORS // tiles, steps // 4, 64), 1)
        choices = (4, 8) if o * p >= 8192 else (4,), (2, 3, 4), sorted({1, most_splits})
        for warps, stages, splits in itertools.product(*choices):
            if (o + p) * k * itemsize * stages <= SHARED_BYTES and not (o * p == 32768 and warps == 4):
                plans.append(GemmPlan(o, p, k, warps, stages, splits))
    if precision == "tf32x3" and O >= FEWEST_TO_SPLIT and C >= CHANNELS and parts_fit(others * P * C):
        plans += BEFOREHAND
    return plans


#: For factors that are split beforehand, a stage of which has both parts of both; as for products of matrices.
BEFOREHAND = (
    GemmPlan(128, 128, 32, 8, 3, 1, 1),
    GemmPlan(128, 128, 16, 8, 3, 1, 1),
    GemmPlan(64, 128, 32, 4, 2, 1, 1),
    GemmPlan(64, 128, 16, 4, 3, 1, 1),
)
#: Its name is that of tables which users have.
IMPLICIT_GEMM = Family("gathered product", GemmPlan, _candidates)


def product_tile(O: int, P: int, others: int, K: int, dtype: torch.dtype, precision: str) -> GemmTile:  # noqa: E741
    """A tile that is no larger than the result, and small enough for a program on each of 132 multiprocessors.

    Args:
        O: rows, P: columns of one of ``others`` products.
        others: groups and phases.
        K: what steps divide: the channels under a tap, or all that is summed.
        dtype: of the operands.
        precision: of their products.
    """
    if INTERPRETED:
        o, p, k = (max(triton.next_power_of_2(size), 16) for size in (O, P, K))
        return GemmTile(min(o, 64), min(p, 1024), min(k, 256), 4, 1)
    o = min(max(triton.next_power_of_2(O), 16), 128)
    if not feeds_tensor_cores(dtype, precision):
        # Without tensor cores a thread holds a tile of 8 x 8 products.
        o = min(o, 64)
        p = 128 if others * triton.cdiv(O, o) * triton.cdiv(P, 128) >= 132 else 64
        return GemmTile(o, p, 16, 8 if o * p >= 8192 else 4, 3 if dtype == torch.float32 else 2)
    k = min((64, 32, 16), key=lambda k: triton.cdiv(K, k) * (k + 8))
    if dtype == torch.float32:
        k = min(k, 32)
    programs = {p: others * triton.cdiv(O, o) * triton.cdiv(P, p) for p in (256, 128, 64)}
    # Parts of float32 take registers, too: of 128 x 256 a thread spills some 200 numbers.
    widest = (128,) if dtype == torch.float32 else (256, 128)
    filling = [p for p in widest if programs[p] >= MULTIPROCESSORS]
    if filling:
        # Of 156 programs 24 would have the device for themselves at the end.
        p = min(filling, key=lambda p: triton.cdiv(programs[p], MULTIPROCESSORS) * (p + 16))
        return GemmTile(o, p, k, 8 if o * p >= 16384 else 4, 3)
    if programs[64] >= MULTIPROCESSORS:
        return GemmTile(o, 64, k, 4, 3)
    # A program's steps follow each other: shorter ones, more of which are on their way.
    return GemmTile(min(o, 64), 64, k, 4, 4)


def tile_of_few_steps(tile: GemmTile) -> GemmTile:
    """A tile of which a multiprocessor has shared memory and registers for four, instead of a larger one."""
    return tile if INTERPRETED or tile.o * tile.p <= 64 * 128 else GemmTile(min(tile.o, 64), 128, tile.k, 4, 2)
