"""Matrix products: of two matrices, of batches, and added to a third operand.

``c_MN = alpha * (a_MK @ b_KN) + beta * s_MN``: ``2 M N K`` operations over ``(M K + K N + M N) * itemsize`` compulsory
bytes. A program owns one tile of one result and walks along K, BLOCK_K at a step, while the tiles of the next steps are
on their way to shared memory (software pipelining, ``num_stages``)::

                                N
                      +------+------+------+
                      |      | b_KN |      |   BLOCK_K terms a step
                    K |      +------+      |     |
                      |      |      |      |     v
             K        |      |      |      |
      +------+-----+  +------+------+------+
    M | a_MK |     |  |      | c_MN |      |   BLOCK_M x BLOCK_N: in registers, written once
      +------+-----+  +------+------+------+
      |            |  |                    |
        BLOCK_K ->

- Programs that run side by side own neighbouring tiles, in grouped order (:func:`~.product_tiles.tile_origin`).
- Split-K: where a result has too few tiles to fill the device, programs take a share of K each and write partial sums
  in the type of the accumulator; a second launch adds them up, in a fixed order (:func:`combine_kernel`).
- Tensor cores cut off what their accumulators cannot hold. So very long sums are made of parts: by a launch each, which
  adds the part before as its term, or by programs with two accumulators, of which the tensor cores have one
  (:func:`~.product_tiles.promoted`).
- float32 is multiplied as 3xTF32 (Ootomo and Yokota, 2022); large products may have their factors split into TF32
  numbers beforehand (tf32x3.py). Complex factors are multiplied as real ones (complex_factors.py).

Suffixes: ``_B`` batch, ``_M`` rows of a and c, ``_N`` columns of b and c, ``_K`` the summed dimension.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Geometry, converted, index_type
from ..common.launch import (
    ELEMENT_TYPE,
    INTERPRETED,
    INTERPRETED_TILE,
    compute_dtype,
    compute_type,
    constants,
    launch,
    loop_bound,
    multiprocessors,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..common.tuning import Family, Work, size_class
from ..copies.filling import filled
from ..copies.rearrangements import copied
from ..pointwise import complex_arithmetic
from ..pointwise.complex_parts import PART, has_complex, map_parts
from .complex_factors import pairs_of, right_factor
from .product_tiles import (
    Layout,
    Math,
    in_range,
    known_multiple,
    matrix_strides,
    multiply_add,
    promoted,
    scaled_sum,
    tile_origin,
)
from .tf32x3 import multiply_parts, parts_fit, parts_of

#: Rows of tiles that programs go down before they go right (grouped order), as many as in Triton's matmul tutorial.
GROUP = 8
#: Sums of fewer terms are made of exact products: from so many on, float32 rounds a sum more than 3xTF32 its products.
LONG_SUM = 64
#: A result in float32 with no more rows or columns than this is bound by memory, with tensor cores and without.
NARROW = 16
#: A copy of a factor in another layout costs as much as so many uses of each of its numbers.
USES_THAT_PAY = 128
#: Split-K needs more steps than this: fewer are over before the second launch, which adds the splits up, would begin.
FEW_STEPS = 15
#: Partial sums of more splits than this are read 32 at a time: one after the other, each load waits for the one before.
FEW_SPLITS = 8
#: Sums of more terms than this are added up in parts of so many. In one accumulator, which cuts off each term at 24
#: bits, 75 results of 6 million in float16 were off by twice the tolerance of 30,522 terms, 7 of 524,288 of 12,544.
MOST_TERMS, PART_TERMS = 8192, 2048
#: Memory budget of the partial sums in float32 that are kept for no other reason than that.
MOST_PARTIAL_BYTES = 1 << 30
#: What candidates for a tile are cut to: multiprocessors and bytes of shared memory of a Hopper GPU.
MULTIPROCESSORS, SHARED_BYTES = 132, 227 << 10
#: The types of factors.
_SERVED = (*ELEMENT_TYPE, *PART)
#: Factors are split into TF32 numbers beforehand from so many uses of each number, and so many products of two, on:
#: splitting takes as long as 130 to 200 uses on an H200 (benchmarks/results/h200/float32-products.json).
USES_TO_SPLIT, PRODUCTS_TO_SPLIT = 450, 2**31


class Sizes(NamedTuple):
    """Rows and columns of the result, and terms of each of its sums."""

    M: Any
    N: Any
    K: Any


class Strides(NamedTuple):
    """Of batch, rows and columns of the factors and of the term that is added."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    self: tuple[int, ...]


class Scales(NamedTuple):
    """The bits of alpha and beta in the type of the accumulator, see :func:`~.launch.number_bits`."""

    alpha: int
    beta: int


@triton.jit
def matmul_kernel(
    c_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    self_ptr: tl.tensor,
    wanted_ptr: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    scales: tl.tuple,
    steps: tl.tensor,
    MATH: tl.tuple,
    LAYOUT: tl.tuple,
    INDEX: tl.constexpr,
    IS_SPLIT: tl.constexpr,
    EVEN_K: tl.constexpr,
    PART_STEPS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """One ``BLOCK_M x BLOCK_N`` tile of the row-major c of one batch, over the ``steps * BLOCK_K`` terms of one split.

    Args:
        c_ptr: (B, M, N), or partial sums (splits, B, M, N).
        a_ptr: (B, M, K).
        b_ptr: (B, K, N).
        self_ptr: (B, M, N), or None; ignored if IS_SPLIT.
        wanted_ptr: one number, of which 0 is for nothing, or None.
        sizes: see :class:`Sizes`.
        strides: see :class:`Strides`.
        scales: see :class:`Scales`.
        steps: of this split, one at least.
        MATH: see :class:`~.product_tiles.Math`.
        LAYOUT: see :class:`~.product_tiles.Layout`.
        INDEX: the type of offsets.
        IS_SPLIT: c are partial sums.
        EVEN_K: the steps of all splits make up K.
        PART_STEPS: as for :func:`promoted`.
        GROUP: rows of tiles that programs go down.
        BLOCK_M: rows of a tile.
        BLOCK_N: columns of a tile.
        BLOCK_K: terms of a step.
    """
    pdl_prologue()
    if wanted_ptr is not None:  # noqa: SIM102 - Of a pointer only Triton's compiler knows whether it is None.
        if tl.load(wanted_ptr) == 0:
            return
    M, N, K = sizes
    first_M, first_N = tile_origin(M, N, GROUP, BLOCK_M, BLOCK_N, INDEX)
    batch, split = tl.program_id(1).to(INDEX), tl.program_id(2).to(INDEX)
    m, n = first_M + tl.arange(0, BLOCK_M), first_N + tl.arange(0, BLOCK_N)
    first_K = split * steps * BLOCK_K
    k = tl.arange(0, BLOCK_K).to(INDEX)

    # Rows beyond M and columns beyond N read what is there, and are not written.
    inside_m = in_range(m, M, LAYOUT.M_CONTIGUOUS, LAYOUT.A_VEC)
    inside_n = in_range(n, N, LAYOUT.N_CONTIGUOUS, LAYOUT.B_VEC)
    a_stride_B, a_stride_M, a_stride_K = matrix_strides(strides.a, LAYOUT.M_CONTIGUOUS, LAYOUT.A_VEC)
    b_stride_B, b_stride_K, b_stride_N = matrix_strides(strides.b, not LAYOUT.N_CONTIGUOUS, LAYOUT.B_VEC)
    a_ptr_MK = a_ptr + batch * a_stride_B + first_K * a_stride_K
    a_ptr_MK = a_ptr_MK + (inside_m[:, None] * a_stride_M + k[None, :] * a_stride_K)
    b_ptr_KN = b_ptr + batch * b_stride_B + first_K * b_stride_K
    b_ptr_KN = b_ptr_KN + (k[:, None] * b_stride_K + inside_n[None, :] * b_stride_N)

    c_MN = tl.zeros([BLOCK_M, BLOCK_N], MATH.ACCUMULATE)
    done_MN = tl.zeros([BLOCK_M, BLOCK_N], MATH.ACCUMULATE)
    tl.assume(steps > 0)  # See product_tiles.py.
    for step in range(steps):
        if EVEN_K:
            a_MK, b_KN = tl.load(a_ptr_MK), tl.load(b_ptr_KN)
        else:
            left = known_multiple(K, LAYOUT.K_VEC) - first_K - step * BLOCK_K
            a_MK = tl.load(a_ptr_MK, mask=k[None, :] < left, other=0)
            b_KN = tl.load(b_ptr_KN, mask=k[:, None] < left, other=0)
        c_MN = multiply_add(a_MK, b_KN, c_MN, MATH.MULTIPLY, MATH.PRECISION)
        c_MN, done_MN = promoted(c_MN, done_MN, step, PART_STEPS)
        a_ptr_MK += BLOCK_K * a_stride_K
        b_ptr_KN += BLOCK_K * b_stride_K
    if PART_STEPS:
        c_MN += done_MN

    columns = known_multiple(N, LAYOUT.C_VEC)
    mask = (m < M)[:, None] & (n < columns)[None, :]
    if not IS_SPLIT:
        if self_ptr is not None:
            self_ptr += batch * strides.self[0]
            self_ptr_MN = self_ptr + m[:, None] * strides.self[1] + n[None, :] * strides.self[2]
        else:
            self_ptr_MN = None
        c_MN = scaled_sum(c_MN, self_ptr_MN, mask, scales.alpha, scales.beta)
    c_ptr += (split * tl.num_programs(1) + batch) * M * columns
    tl.store(c_ptr + m[:, None] * columns + n[None, :], converted(c_MN, c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def combine_kernel(
    c_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    self_ptr: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    numel: tl.tensor,
    c_strides_BMN: tl.tuple,
    self_strides_BMN: tl.tuple,
    alpha_bits: tl.tensor,
    beta_bits: tl.tensor,
    splits: tl.tensor,
    IS_ROW_MAJOR: tl.constexpr,
    INDEX: tl.constexpr,
    AT_A_TIME: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``c = alpha * sum of partial[s] over s + beta * self`` for a block of c, AT_A_TIME of the splits in one load."""
    pdl_prologue()
    ELEMENT: tl.constexpr = partial_ptr.dtype.element_ty
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    mask = i < numel
    c_SI = tl.zeros([AT_A_TIME, BLOCK], ELEMENT)
    for first in range(0, splits, AT_A_TIME):
        s = first + tl.arange(0, AT_A_TIME).to(INDEX)
        partial_ptr_SI = partial_ptr + (s * numel)[:, None] + i[None, :]
        c_SI += tl.load(partial_ptr_SI, mask=(s < splits)[:, None] & mask[None, :], other=0)
    c = tl.sum(c_SI, axis=0).to(ELEMENT)
    n, m, b = i % N, i // N % M, i // N // M
    if self_ptr is not None:
        self_ptr_I = self_ptr + b * self_strides_BMN[0] + m * self_strides_BMN[1] + n * self_strides_BMN[2]
    else:
        self_ptr_I = None
    c = scaled_sum(c, self_ptr_I, mask, alpha_bits, beta_bits)
    if not IS_ROW_MAJOR:
        i = b * c_strides_BMN[0] + m * c_strides_BMN[1] + n * c_strides_BMN[2]
    tl.store(c_ptr + i, converted(c, c_ptr.dtype.element_ty), mask=mask)


class ProductTile(NamedTuple):
    """Block sizes and the launch options that go with them."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


class ProductPlan(NamedTuple):
    """A tile, how many programs share the terms of each, and whether factors are split into TF32 numbers beforehand."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    splits: int
    beforehand: int = 0


class Term(NamedTuple):
    """What a product is added to, expanded to its shape, and the two factors; a factor of 0 leaves its part out."""

    tensor: torch.Tensor | None
    beta: float
    alpha: float

    @property
    def added(self) -> torch.Tensor | None:
        """The tensor, unless nothing of it is left."""
        return None if self.beta == 0 else self.tensor


ALONE = Term(None, 0, 1)


def float32_precision(setting: str, terms: int) -> str:
    """How tiles of float32 are multiplied, with what torch's setting ``fp32_precision`` allows.

    ``tf32x3`` splits each factor into two TF32 numbers and leaves out the product of the small parts (Ootomo and
    Yokota, 2022), so that tensor cores multiply to about 22 bits. Short sums are as exact as float32 itself.
    """
    if setting == "tf32":
        return "tf32"
    return "tf32x3" if terms >= LONG_SUM and not INTERPRETED else "ieee"


def dot_precision(dtype: torch.dtype, terms: int, *, tf32: bool = True) -> str | None:
    """How tiles are multiplied for sums of so many terms; None is not by ``tl.dot``.

    Args:
        dtype: of the factors.
        terms: of each sum.
        tf32: whether torch's setting for products decides about TF32, or it is not wanted at all.
    """
    if dtype == torch.float32:
        return float32_precision(torch.backends.cuda.matmul.fp32_precision if tf32 else "ieee", terms)
    return "ieee" if dtype in FLOATS else None


def with_terms_side_by_side(a: torch.Tensor, uses: int) -> torch.Tensor:
    """Factors of shape (B, rows, K) as the tensor cores of a Hopper GPU read four-byte numbers: along K.

    Args:
        a: the factors; a copy of them is worth its traffic where each is used often.
        uses: how often.
    """
    return a if a.stride(2) == 1 or uses < USES_THAT_PAY else copied(a)


def multiply_type(dtype: torch.dtype) -> Any:
    """What factors are multiplied as: the interpreter multiplies the raw bits of bfloat16, so there float32."""
    return compute_type(dtype) if INTERPRETED else ELEMENT_TYPE[dtype]


def product(a: torch.Tensor, b: torch.Tensor, term: Term = ALONE, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """``term.alpha * a @ b + term.beta * term.tensor`` of batches of matrices, which is row-major.

    Args:
        a: of shape (B, M, K), real or complex as ``b``.
        b: of shape (B, K, N).
        term: with a tensor that expands to (B, M, N).
        out_dtype: of the result, where that is not the operands' own.
    """
    (B, M, _), N = a.shape, b.shape[2]
    out = torch.empty((B, M, N), dtype=out_dtype or a.dtype, device=a.device)
    if not out.numel():
        return out
    if has_complex(term.alpha, term.beta):
        products = product(a, b)
        if term.added is None:
            return map_parts(complex_arithmetic.product_of, [products, term.alpha])
        return map_parts(complex_arithmetic.combination_of, [products, term.added], [term.alpha, term.beta])
    if out.is_complex():
        added = None if term.added is None else pairs_of(term.added.expand(out.shape))
        write_product(pairs_of(out), pairs_of(a), right_factor(b), term._replace(tensor=added))
    else:
        write_product(out, a, b, term)
    return out


def write_product(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, term: Term = ALONE, *, tf32: bool = True) -> None:
    """As :func:`product`, into a row-major ``c`` that is not empty; ``tf32`` as for :func:`dot_precision`."""
    if term.alpha == 0:
        a, b = a.narrow(2, 0, 0), b.narrow(1, 0, 0)
    (B, M, K), N = a.shape, b.shape[2]
    if K == 0 and term.added is None:
        filled(c, 0)
        return
    narrow = min(M, N) <= NARROW and a.dtype == torch.float32
    precision = "ieee" if narrow else dot_precision(a.dtype, K, tf32=tf32)
    tile, wanted = product_plan(a, b, precision), None
    if tile.beforehand and K:
        wanted = _write_from_parts(c, a, b, term, tile)
        tile = ProductPlan(*product_tile(B, M, N, K, a.dtype, precision), splits=1)
    elif precision == "tf32x3":
        a, b = with_terms_side_by_side(a, N), with_terms_side_by_side(b.mT, M).mT
    if takes_several_launches(tile, a.dtype, precision, K):
        _launch_parts(c, a, b, term, tile, precision)
    else:
        _launch_product(c, a, b, term, tile, precision, wanted)


def _launch_parts(
    c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, term: Term, plan: ProductPlan, precision: str | None
) -> None:
    """As :func:`write_product`: each launch adds a part of every sum to what the one before it wrote."""
    K = a.shape[2]
    # Where rows begin at 16 bytes, so do those of each part.
    length = triton.cdiv(triton.cdiv(K, triton.cdiv(K, MOST_TERMS)), 128) * 128
    for first in range(0, K, length):
        terms = min(length, K - first)
        out = c if first + terms == K else torch.empty(c.shape, dtype=compute_dtype(a.dtype), device=c.device)
        _launch_product(out, a.narrow(2, first, terms), b.narrow(1, first, terms), term, plan, precision)
        term = Term(out, 1, term.alpha)


def _launch_product(
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    term: Term,
    tile: ProductPlan,
    precision: str | None,
    wanted: torch.Tensor | None = None,
) -> None:
    """As :func:`write_product`, by this tile; ``wanted`` as for the kernel."""
    (B, M, K), N = a.shape, b.shape[2]
    splits = max(min(tile.splits, triton.cdiv(K, tile.k)), 1)
    steps = max(triton.cdiv(triton.cdiv(K, tile.k), splits), 1)
    part_steps = steps_of_a_part(a.dtype, precision, tile.k, steps)
    if part_steps:
        tile = with_two_accumulators(tile, a.element_size())
    target = c if splits == 1 else torch.empty((splits, B, M, N), dtype=compute_dtype(a.dtype), device=c.device)
    added, strides, bits = _term_arguments(term, c)
    layout = Layout(
        M_CONTIGUOUS=a.stride(1) == 1,
        N_CONTIGUOUS=b.stride(2) == 1,
        A_VEC=vector_width(a),
        B_VEC=vector_width(b.mT),
        K_VEC=divisor(K),
        C_VEC=divisor(N),
    )
    launch(
        matmul_kernel,
        (triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n), B, splits),
        c.device,
        target,
        a,
        b,
        added if splits == 1 else None,
        wanted,
        Sizes(M, N, K),
        Strides(a.stride(), b.stride(), strides),
        bits,
        loop_bound(steps),
        MATH=constants(Math(compute_type(a.dtype), multiply_type(a.dtype), precision)),
        LAYOUT=constants(layout),
        INDEX=_index_type(a, b, target),
        IS_SPLIT=splits > 1,
        EVEN_K=steps * splits * tile.k == K,
        PART_STEPS=part_steps,
        GROUP=GROUP,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        BLOCK_K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if splits > 1:
        combine(c, target, term)


def _write_from_parts(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, term: Term, plan: ProductPlan) -> torch.Tensor:
    """As :func:`write_product`, of finite numbers; returns one number, which is not 0 if there are others."""
    has_nonfinite = filled(torch.empty(1, dtype=torch.int32, device=c.device), 0)
    added, strides, bits = _term_arguments(term, c)
    multiply_parts(
        c,
        parts_of(a.unsqueeze(1), has_nonfinite, plan.m, plan.k),
        parts_of(b.mT.unsqueeze(1), has_nonfinite, plan.n, plan.k),
        added,
        strides,
        bits,
        tile=(plan.m, plan.n, plan.k),
        warps=plan.warps,
        stages=plan.stages,
        group=GROUP,
    )
    return has_nonfinite


def steps_of_a_part(dtype: torch.dtype, precision: str | None, k: int, steps: int) -> int:
    """After how many of its steps of ``k`` terms a program begins a new part of its sum; 0 for never."""
    return PART_TERMS // k if _cuts_off_terms(dtype, precision) and steps * k > MOST_TERMS else 0


def fewest_splits(terms: int, numel: int, dtype: torch.dtype, precision: str | None) -> int:
    """How many programs have to share the sums of a result so that none adds up more than MOST_TERMS.

    Fewer where partial sums of the result's ``numel`` numbers would not fit into MOST_PARTIAL_BYTES.
    """
    if not _cuts_off_terms(dtype, precision):
        return 1
    return max(min(-(-terms // MOST_TERMS), MOST_PARTIAL_BYTES // (4 * max(numel, 1))), 1)


def _cuts_off_terms(dtype: torch.dtype, precision: str | None) -> bool:
    """Whether tensor cores add up."""
    return compute_dtype(dtype) != dtype or precision in ("tf32", "tf32x3")


def takes_several_launches(plan: ProductPlan, dtype: torch.dtype, precision: str | None, K: int) -> bool:
    """Whether sums of half types are so long that one launch would need two accumulators, and a smaller tile for them.

    Then a launch for each part multiplies by the tile of the plan, for 8 bytes more that are moved for a number of the
    result and a part.
    """
    is_long = steps_of_a_part(dtype, precision, plan.k, triton.cdiv(K, plan.k)) > 0
    is_one_of_half_types = compute_dtype(dtype) != dtype and plan.splits == 1
    return is_one_of_half_types and is_long and with_two_accumulators(plan, dtype.itemsize) != plan


def with_two_accumulators(plan: ProductPlan, itemsize: int) -> ProductPlan:
    """The same with a tile of which a thread can hold two: 64 numbers of each, or 32 beside the parts of float32."""
    n = 128 if itemsize == 2 else 64
    if plan.m * plan.n <= 16 * n * plan.warps:
        return plan
    return plan._replace(m=min(plan.m, 128), n=min(plan.n, n), warps=8)


def vector_width(factor: torch.Tensor) -> int:
    """How many neighbours in memory of a factor of shape (B, rows, K) can be read at a time: 1, 2, 4 or 8.

    1 also where 16 divides all that matters, which Triton finds out by itself.
    """
    runs = 1 if factor.stride(1) == 1 else 2
    if factor.stride(runs) != 1:
        return 1
    strides = (factor.stride(dim) for dim in (0, 3 - runs) if factor.shape[dim] > 1)
    return divisor(*strides, *([factor.shape[1]] if runs == 1 else []))


def divisor(*sizes: int) -> int:
    """The largest power of two up to 8 that divides all of them; 1 where 16 does."""
    found = math.gcd(16, *sizes)
    return 1 if found == 16 else found


def combine(c: torch.Tensor, partial: torch.Tensor, term: Term) -> None:
    """Add up dense partial products of shape (splits, B, M, N) into ``c``, which need not be row-major."""
    _, M, N = c.shape
    numel, splits = c.numel(), partial.shape[0]
    added, strides, bits = _term_arguments(term, c)
    at_a_time, block = (32, 64) if splits > FEW_SPLITS else (1, 512)
    if INTERPRETED:
        block = min(triton.next_power_of_2(numel), INTERPRETED_TILE // at_a_time)
    launch(
        combine_kernel,
        (triton.cdiv(numel, block),),
        c.device,
        c,
        partial,
        added,
        M,
        N,
        numel,
        c.stride(),
        strides,
        *bits,
        loop_bound(splits),
        IS_ROW_MAJOR=c.is_contiguous(),
        INDEX=_index_type(c, partial),
        AT_A_TIME=at_a_time,
        BLOCK=block,
    )


def _term_arguments(term: Term, c: torch.Tensor) -> tuple[torch.Tensor | None, tuple[int, ...], Scales]:
    """The added tensor, its strides, and both factors in the type of the accumulator."""
    compute = compute_type(c.dtype)
    bits = Scales(number_bits(term.alpha, compute), number_bits(term.beta, compute))
    if term.added is None:
        return None, (0, 0, 0), bits
    return term.added, term.added.expand(c.shape).stride(), bits


def _index_type(*tensors: torch.Tensor) -> tl.dtype:
    reach = [Geometry(tuple(x.shape), (x.stride(),)) for x in tensors]
    return max((index_type(part) for part in reach), key=lambda index: index.primitive_bitwidth)


def _splits(tiles: int, steps: int, device: torch.device) -> int:
    """How many programs share a tile: one for each multiprocessor, of at least four steps each (split-K)."""
    if INTERPRETED or steps <= FEW_STEPS or tiles * 2 > multiprocessors(device):
        return 1
    return max(min(multiprocessors(device) // tiles, steps // 4, 64), 1)


def product_plan(a: torch.Tensor, b: torch.Tensor, precision: str | None) -> ProductPlan:
    """What was measured to be fastest for factors like these, or else what the rule says."""
    (B, M, K), N = a.shape, b.shape[2]
    tile = product_tile(B, M, N, K, a.dtype, precision)
    splits = _splits(B * triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n), triton.cdiv(K, tile.k), a.device)
    layout = ("t" if a.stride(2) != 1 else "n") + ("t" if b.stride(1) == 1 else "n")
    whole = "".join("e" if size % 16 == 0 else "o" for size in (M, N, K))
    kind = str(a.dtype).removeprefix("torch."), precision or "none", layout, whole
    work: Work = (*kind, *map(size_class, (B, M, N, K)))
    rule = ProductPlan(*tile, splits)
    if precision == "tf32x3" and splitting_pays(B, M, N, K, is_aligned=is_aligned(a) and is_aligned(b)):
        rule = split_plan(B, M, N)
    return PRODUCTS.choice(work, rule, a.device)


def splitting_pays(B: int, M: int, N: int, K: int, *, is_aligned: bool) -> bool:
    """Whether factors are split beforehand where nothing was measured for such ones.

    From rows that do not begin at 16 bytes a product is a fourth as fast without, so that it pays much earlier there.
    """
    uses, products = (USES_TO_SPLIT, PRODUCTS_TO_SPLIT) if is_aligned else (64, 2**26)
    return parts_fit(B * (M + N) * K) and uses * (M + N) <= M * N and products <= B * M * N * K


def split_plan(B: int, M: int, N: int) -> ProductPlan:
    """Tiles of 128 x 128, one a multiprocessor, unless three of half the size leave fewer of them idle at the end."""
    whole, halved = BEFOREHAND

    def rounds(plan: ProductPlan) -> int:
        tiles: int = B * triton.cdiv(M, plan.m) * triton.cdiv(N, plan.n)
        return -(-tiles // MULTIPROCESSORS)

    return halved if 1.1 * rounds(halved) < 2 * rounds(whole) else whole


def is_aligned(factor: torch.Tensor) -> bool:
    """Whether every row of a factor in float32, or every column, begins at 16 bytes."""
    runs = 2 if factor.stride(2) == 1 else 1
    return all(factor.stride(dim) % 4 == 0 for dim in range(3) if dim != runs and factor.shape[dim] > 1)


def _product_candidates(work: Work) -> list[ProductPlan]:
    """Tiles that fit the work and a multiprocessor, alone or with the terms split over the device."""
    itemsize = {"bfloat16": 2, "float16": 2, "float32": 4}.get(str(work[0]))
    if itemsize is None:
        return []
    B, M, N, K = map(int, work[4:])
    sizes = (16, 32, 64, 128, 256)
    # float32 is multiplied from registers, which larger tiles exceed.
    most = 32768 if itemsize == 2 or work[1] == "tf32" else 16384
    plans = []
    for m, n, k in itertools.product(sizes, sizes, (128 // itemsize, 256 // itemsize)):
        if m >= max(2 * M, 32) or n >= max(2 * N, 32) or not 1024 <= m * n <= most:
            continue
        tiles = B * triton.cdiv(M, m) * triton.cdiv(N, n)
        most_splits = max(min(MULTIPROCESSORS // tiles, triton.cdiv(K, k) // 4, 64), 1)
        for warps, stages, splits in itertools.product(
            (4, 8) if m * n >= 8192 else (4,), (3, 4), sorted({1, most_splits, max(most_splits // 2, 1)})
        ):
            if (m + n) * k * itemsize * stages <= SHARED_BYTES and not (m * n == 32768 and warps == 4):
                plans.append(ProductPlan(m, n, k, warps, stages, splits))
    if work[1] == "tf32x3" and min(M, N) >= USES_THAT_PAY and parts_fit(B * (M + N) * K):
        plans += BEFOREHAND
    return plans


#: For factors that are split beforehand, a stage of which has both parts of both. A thread holds two accumulators:
#: larger tiles spill, and four others were slower (benchmarks/results/kernels/h200/float32-products).
BEFOREHAND = (ProductPlan(128, 128, 32, 8, 3, 1, 1), ProductPlan(64, 128, 16, 4, 3, 1, 1))
PRODUCTS = Family("product", ProductPlan, _product_candidates)


def product_tile(B: int, M: int, N: int, K: int, dtype: torch.dtype, precision: str | None) -> ProductTile:
    """A tile that fits the type's instructions, as large as leaves a program for each of 132 multiprocessors.

    A large tile loads less for each product: 128 x 256 reads a byte for 85 operations, 64 x 64 for 32. Tiles of
    128 x 128 have three stages, not four: a multiprocessor has shared memory for two such programs, of which one
    multiplies while the other begins or ends, and 196 of them run at once on 132 multiprocessors.
    """
    if INTERPRETED:
        return ProductTile(64, 64, 64, 4, 1)
    if dtype not in FLOATS:
        return ProductTile(16, 16, 16, 4, 1)
    if dtype == torch.float64:
        return ProductTile(64, 64, 16, 4, 2)
    if dtype == torch.float32:
        return _float32_tile(B, M, N) if precision == "ieee" else _split_float32_tile(B, M, N)
    if M <= 32 or N <= 32:
        return _narrow_tile(M, N, K)
    for tile in (ProductTile(128, 256, 64, 8, 3), ProductTile(128, 128, 64, 4, 3), ProductTile(64, 128, 64, 4, 4)):
        if B * triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n) >= 132 and tile.m // 2 < M and tile.n // 2 < N:
            return tile
    # A few programs wait for each step of theirs: they take half as many.
    return ProductTile(64, 64, 128, 4, 3) if 64 < K <= 1024 else ProductTile(64, 64, 64, 4, 4)


def _narrow_tile(M: int, N: int, K: int) -> ProductTile:
    """A tile no larger than the factors: one of them is read once whatever the tile is.

    A long step keeps more of it on its way. Where a product is tiny, a warp has it, and a multiprocessor many.
    """
    narrow = 16 if min(M, N) <= 16 else 32
    wide = min(max(triton.next_power_of_2(max(M, N)), narrow), 64)
    k = min(max(triton.next_power_of_2(K), 16), 128)
    warps = 1 if narrow * wide <= 512 and k <= 32 else 4
    return ProductTile(narrow, wide, k, warps, 4) if M <= N else ProductTile(wide, narrow, k, warps, 4)


def _float32_tile(B: int, M: int, N: int) -> ProductTile:
    """Without tensor cores a thread holds a tile of 8 x 8 products."""
    if M <= 16 or N <= 16:
        return ProductTile(16, 64, 32, 4, 3) if M <= N else ProductTile(64, 16, 32, 4, 3)
    if B * triton.cdiv(M, 128) * triton.cdiv(N, 128) >= 132:
        return ProductTile(128, 128, 16, 8, 3)
    return ProductTile(64, 64, 32, 4, 3)


def _split_float32_tile(B: int, M: int, N: int) -> ProductTile:
    """On tensor cores, whose factors are split in registers: the largest tile of which each has more than one."""
    for tile in (ProductTile(128, 128, 32, 8, 3), ProductTile(128, 64, 32, 4, 4)):
        if B * triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n) >= 264:
            return tile
    return ProductTile(64, 64, 32, 4, 4)


def _require_factors(name: str, a: torch.Tensor, b: torch.Tensor, ndim: int) -> None:
    """Refuse factors that do not fit each other.

    Raises:
        ValueError: dimensions or sizes that do not fit.
        TypeError: two types, or bool.
        NotImplementedError: a type that is not served.
    """
    if a.ndim != ndim or b.ndim != ndim or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise ValueError(f"{name} needs {ndim}-d factors that fit, not {list(a.shape)} and {list(b.shape)}")
    if a.dtype != b.dtype or a.dtype == torch.bool:
        raise TypeError(f"{name} is not defined for {a.dtype} and {b.dtype}")
    require_served(*(x.conj() if x.is_conj() else x for x in (a, b)), dtypes=_SERVED)


def _require_term(
    name: str, self: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], factors: Sequence[float]
) -> None:
    """Refuse a term that does not fit its product.

    Raises:
        ValueError: it does not expand to the product's shape.
        TypeError: another type, or complex factors of real numbers.
        NotImplementedError: factors of integers that are not integers.
    """
    require_served(self, dtypes=_SERVED)
    if has_complex(*factors) and not dtype.is_complex:
        raise TypeError(f"{name} of {dtype} has real factors, not {list(factors)}")
    missing = len(shape) - self.ndim
    if missing < 0 or any(own not in (1, size) for own, size in zip(self.shape, shape[missing:], strict=True)):
        raise ValueError(f"{name}: {list(self.shape)} does not expand to {list(shape)}")
    if self.dtype != dtype:
        raise TypeError(f"{name} is not defined for {self.dtype} and {dtype}")
    if not (dtype.is_floating_point or dtype.is_complex) and any(isinstance(factor, float) for factor in factors):
        raise NotImplementedError(f"{name} of integers with the factors {list(factors)} is not served")


def mm(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """``self @ mat2`` of two matrices of one type."""
    _require_factors("mm", self, mat2, 2)
    return product(self.unsqueeze(0), mat2.unsqueeze(0)).squeeze(0)


def bmm(self: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """``self[b] @ mat2[b]`` for each b."""
    _require_factors("bmm", self, mat2, 3)
    return product(self, mat2)


def addmm(
    self: torch.Tensor, mat1: torch.Tensor, mat2: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """``beta * self + alpha * mat1 @ mat2``; a beta of 0 ignores ``self``, NaN too."""
    _require_factors("addmm", mat1, mat2, 2)
    _require_term("addmm", self, mat1.dtype, (mat1.shape[0], mat2.shape[1]), (beta, alpha))
    return product(mat1.unsqueeze(0), mat2.unsqueeze(0), Term(self, beta, alpha)).squeeze(0)


def baddbmm(
    self: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """``beta * self[b] + alpha * batch1[b] @ batch2[b]`` for each b."""
    _require_factors("baddbmm", batch1, batch2, 3)
    _require_term("baddbmm", self, batch1.dtype, (*batch1.shape[:2], batch2.shape[2]), (beta, alpha))
    return product(batch1, batch2, Term(self, beta, alpha))


def addbmm(
    self: torch.Tensor, batch1: torch.Tensor, batch2: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """``beta * self + alpha * sum of batch1[b] @ batch2[b] over b``: products side by side, added up as splits are."""
    _require_factors("addbmm", batch1, batch2, 3)
    require_served(batch1)
    shape = (batch1.shape[1], batch2.shape[2])
    _require_term("addbmm", self, batch1.dtype, shape, (beta, alpha))
    out = torch.empty((1, *shape), dtype=batch1.dtype, device=batch1.device)
    if out.numel():
        wide = compute_dtype(batch1.dtype)
        partial = product(batch1, batch2, out_dtype=wide).unsqueeze(1)
        combine(out, partial, Term(self, beta, alpha))
    return out.squeeze(0)
