"""Products of factors in E4M3 and E5M2 on the tensor cores for 8 bits, with scales.

::

    of rows    c[m, n] = (sum over k of a[m, k] * b[k, n]) * scale_a[m] * scale_b[n] + bias[n]
    of blocks  c[m, n] = sum over t of scale_a[m, t] * scale_b[t, n / B] * (sum over k in block t of a[m, k] * b[k, n])

One scale for a whole factor is the scale of every row. Scales of blocks are those of DeepSeek-V3 (2024, section 3.3.2):
a scale for B = 128 terms of a row of a, and one for B x B numbers of b.

On Hopper the tensor cores' accumulator for 8 bits keeps some 14 bits of a sum (the same section). So the products of a
step of at most 128 terms start from zero, and are added up in float32 by the other cores; for blocks that is where the
scales come in. A tile has two accumulators then: of 128 x 128 in two warp groups each thread has 64 registers for each.

``2 M N K`` operations over ``M K + N K + itemsize * M N`` bytes, and the scales.

Suffixes: ``_B`` batch, ``_M`` rows of a, ``_N`` columns of b, ``_K`` what is summed over.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, converted, index_type
from ..common.launch import INTERPRETED, launch, layout_of, loop_bound, multiprocessors, pdl_prologue, require_served
from ..matmul.matmul import GROUP, Sizes
from ..matmul.product_tiles import tile_origin
from .formats import E4M3, E5M2, FLOAT8, ROUNDED, SOURCES, as_bytes, from_float8, require_low, scale_at, to_float8

_INTERPRETED = tl.constexpr(INTERPRETED)
#: Terms that are summed up in the accumulator of the tensor cores.
TERMS = 128
#: What a product is rounded to.
RESULTS = (*SOURCES, *FLOAT8)
_FORMATS = {E4M3: "E4M3", E5M2: "E5M2"}


class Tile(NamedTuple):
    """Rows and columns of a tile, terms of a step, and how it is launched."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


#: Four stages of 32 KB fit into the shared memory of a multiprocessor of an H200.
LARGE = Tile(128, 128, TERMS, 8, 4)
#: Of few rows: more programs read the other factor, and more of it is on the way.
FLAT = Tile(64, 64, TERMS, 4, 6)
#: Rows of the smallest tile that tensor cores multiply.
FEWEST_ROWS = 16


class Strides(NamedTuple):
    """Of (batch, row, column) of each; scales have those of (batch, row or column, block of terms)."""

    c: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]
    scale_a: tuple[int, ...]
    scale_b: tuple[int, ...]


@triton.jit
def products(a_MK: tl.tensor, b_KN: tl.tensor) -> tl.tensor:
    """``a @ b`` of 8 bits, in float32."""
    if _INTERPRETED:
        c_MN = tl.dot(from_float8(a_MK), from_float8(b_KN))
    else:
        c_MN = tl.dot(a_MK, b_KN)
    return c_MN


@triton.jit
def scaled_product_kernel(
    c_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    scale_a_ptr: tl.tensor,
    scale_b_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    bias_stride: tl.tensor,
    steps: tl.tensor,
    COLUMNS: tl.constexpr,
    NARROW: tl.constexpr,
    INDEX: tl.constexpr,
    EVEN_K: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """One tile of c of one batch.

    COLUMNS: how many columns share a scale, where BLOCK_K terms have scales of their own; 0 where all terms share one.
    NARROW: the format of 8 bits that c, given as bytes, is rounded to, or None.
    """
    pdl_prologue()
    M, N, K = sizes
    first_M, first_N = tile_origin(M, N, GROUP, BLOCK_M, BLOCK_N, INDEX)
    batch = tl.program_id(1).to(INDEX)
    m, n = first_M + tl.arange(0, BLOCK_M), first_N + tl.arange(0, BLOCK_N)
    # Rows beyond M and columns beyond N read what is there, and are not written.
    inside_m, inside_n = tl.minimum(m, M - 1), tl.minimum(n, N - 1)
    k = tl.arange(0, BLOCK_K).to(INDEX)
    a_ptr_MK = a_ptr + batch * strides.a[0] + inside_m[:, None] * strides.a[1] + k[None, :] * strides.a[2]
    b_ptr_KN = b_ptr + batch * strides.b[0] + k[:, None] * strides.b[1] + inside_n[None, :] * strides.b[2]
    scale_a_ptr += batch * strides.scale_a[0]
    scale_b_ptr += batch * strides.scale_b[0]
    scale_a_ptr_M = scale_a_ptr + inside_m * strides.scale_a[1]
    if COLUMNS:
        scale_b_ptr_N = scale_b_ptr + inside_n // COLUMNS * strides.scale_b[1]
    else:
        scale_b_ptr_N = scale_b_ptr + inside_n * strides.scale_b[1]
    c_MN = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    tl.assume(steps > 0)
    for step in range(steps):
        if EVEN_K:
            a_MK, b_KN = tl.load(a_ptr_MK), tl.load(b_ptr_KN)
        else:
            left = K - step * BLOCK_K
            a_MK = tl.load(a_ptr_MK, mask=k[None, :] < left, other=0.0)
            b_KN = tl.load(b_ptr_KN, mask=k[:, None] < left, other=0.0)
        if COLUMNS:
            scale_M = scale_at(scale_a_ptr_M + step * strides.scale_a[2])
            scale_N = scale_at(scale_b_ptr_N + step * strides.scale_b[2])
            c_MN += products(a_MK, b_KN) * (scale_M[:, None] * scale_N[None, :])
        else:
            c_MN += products(a_MK, b_KN)
        a_ptr_MK += BLOCK_K * strides.a[2]
        b_ptr_KN += BLOCK_K * strides.b[1]
    if not COLUMNS:
        c_MN *= scale_at(scale_a_ptr_M)[:, None] * scale_at(scale_b_ptr_N)[None, :]
    if bias_ptr is not None:
        c_MN += scale_at(bias_ptr + inside_n * bias_stride)[None, :]
    c_ptr_MN = c_ptr + batch * strides.c[0] + m[:, None] * strides.c[1] + n[None, :] * strides.c[2]
    inside_MN = (m < M)[:, None] & (n < N)[None, :]
    if NARROW is None:
        tl.store(c_ptr_MN, converted(c_MN, c_ptr.dtype.element_ty), mask=inside_MN)
    else:
        tl.store(c_ptr_MN, to_float8(c_MN, NARROW), mask=inside_MN)


# ---------------------------------------------------------------- host


def scaled_mm(
    self: torch.Tensor,
    mat2: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """``self @ mat2`` with a scale for each factor, or for each row of the one and each column of the other.

    Args:
        self: of shape (M, K), in E4M3 or E5M2.
        mat2: of shape (K, N), in E4M3 or E5M2.
        scale_a: one number, or (M, 1), in float32.
        scale_b: one number, or (1, N), in float32.
        bias: (N,), or None.
        scale_result: none is served.
        out_dtype: None for that of ``self``.
        use_fast_accum: allows less precise sums, which are not used.

    Raises:
        NotImplementedError: other types or scales: of blocks, of microscaled formats.
        ValueError: shapes that do not fit each other.
    """
    del use_fast_accum
    require_served(bias, dtypes=SOURCES)
    require_served(scale_a, scale_b, dtypes=(torch.float32,))
    dtype = self.dtype if out_dtype is None else out_dtype
    if scale_result is not None or dtype not in RESULTS:
        raise NotImplementedError(f"results in {dtype} and scales of results are not served")
    if self.ndim != 2 or mat2.ndim != 2 or self.shape[1] != mat2.shape[0]:
        raise ValueError(f"{list(self.shape)} and {list(mat2.shape)} are no factors of a product")
    rows, columns = self.shape[0], mat2.shape[1]
    if bias is not None and tuple(bias.shape) != (columns,):
        raise ValueError(f"{columns} columns have no bias of {list(bias.shape)}")
    one_each = scale_a.numel() == 1 and scale_b.numel() == 1
    if not one_each and (tuple(scale_a.shape), tuple(scale_b.shape)) != ((rows, 1), (1, columns)):
        raise NotImplementedError(f"scales of {list(scale_a.shape)} and {list(scale_b.shape)} are not served")
    c = torch.empty((rows, columns), dtype=dtype, device=self.device)
    if one_each:
        scales = scale_a.view(1, 1, 1), scale_b.view(1, 1, 1)
    else:
        scales = scale_a.unsqueeze(0), scale_b.mT.unsqueeze(0)
    multiply(c.unsqueeze(0), self.unsqueeze(0), mat2.unsqueeze(0), *scales, bias=bias)
    return c


def multiply(
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    block: int = 0,
) -> None:
    """Write the scaled product of ``a[B, M, K]`` and ``b[B, K, N]`` into ``c[B, M, N]``.

    Args:
        c: in one of :data:`RESULTS`.
        a: in E4M3 or E5M2.
        b: in E4M3 or E5M2.
        scale_a: (B, M or 1, blocks of K or 1).
        scale_b: (B, N, blocks of N, or 1; blocks of K or 1).
        bias: (N,), or None.
        block: terms, and columns, of a block that has a scale; 0: all terms share one.

    Raises:
        NotImplementedError: other types, devices or blocks.
    """
    require_low(a, b, dtypes=FLOAT8)
    require_served(scale_a, scale_b, dtypes=SOURCES)
    if block and (block > TERMS or block < FEWEST_ROWS * 2 or block & (block - 1)):
        raise NotImplementedError(f"blocks of {block} terms are not served")
    (batch, M, K), N = a.shape, b.shape[2]
    if not c.numel():
        return
    tile = tile_of(batch, M, N, c.device)
    if block:
        tile = tile._replace(k=block)
    narrow = _FORMATS.get(c.dtype)
    reach = [Geometry(shape, (strides,)) for shape, strides in map(layout_of, (a, b, c))]
    launch(
        scaled_product_kernel,
        (triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n), batch),
        c.device,
        c if narrow is None else as_bytes(c),
        a,
        b,
        scale_a,
        scale_b,
        bias,
        Sizes(M, N, K),
        Strides(c.stride(), a.stride(), b.stride(), _of_scales(scale_a), _of_scales(scale_b)),
        0 if bias is None else bias.stride(0),
        loop_bound(max(1, triton.cdiv(K, tile.k))),
        COLUMNS=block,
        NARROW=narrow,
        INDEX=max((index_type(part) for part in reach), key=lambda index: index.primitive_bitwidth),
        EVEN_K=K % tile.k == 0 and K > 0,
        GROUP=GROUP,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        BLOCK_K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def tile_of(batch: int, rows: int, columns: int, device: torch.device) -> Tile:
    """The large tile where there are so many that each multiprocessor has one; else a flat one."""
    large = batch * triton.cdiv(rows, LARGE.m) * triton.cdiv(columns, LARGE.n) >= multiprocessors(device)
    tile = LARGE if large and rows > FLAT.m else FLAT
    return tile._replace(m=max(FEWEST_ROWS, min(tile.m, triton.next_power_of_2(rows))))


def _of_scales(scale: torch.Tensor) -> tuple[int, ...]:
    """The strides of scales; where all share one, each is the next one's neighbour in the same place."""
    return tuple([0 if size == 1 else stride for size, stride in zip(scale.shape, scale.stride(), strict=True)])


# ---------------------------------------------------------------- problems


class ScaledProduct(torch.nn.Module):
    """Problem 5: a scale for each factor."""

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, scale_x: torch.Tensor, scale_weight: torch.Tensor
    ) -> torch.Tensor:
        """``x[M, K] @ weight[N, K].T`` in bfloat16."""
        return scaled_mm(x, weight.t(), scale_x, scale_weight, out_dtype=ROUNDED)


class RowScaledProduct(torch.nn.Module):
    """Problem 6: a scale for each token and each output channel."""

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, scale_x: torch.Tensor, scale_weight: torch.Tensor
    ) -> torch.Tensor:
        """``x[M, K] @ weight[N, K].T`` in bfloat16."""
        return scaled_mm(x, weight.t(), scale_x, scale_weight.t(), out_dtype=ROUNDED)


class BlockScaledProduct(torch.nn.Module):
    """Problem 7: a scale for each ``block`` terms of a token, and one for ``block`` x ``block`` weights."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(
        self, x: torch.Tensor, scale_x: torch.Tensor, weight: torch.Tensor, scale_weight: torch.Tensor
    ) -> torch.Tensor:
        """``x[M, K] @ weight[N, K].T`` in bfloat16."""
        c = torch.empty((len(x), len(weight)), dtype=ROUNDED, device=x.device)
        factors = x.unsqueeze(0), weight.t().unsqueeze(0)
        multiply(c.unsqueeze(0), *factors, scale_x.unsqueeze(0), scale_weight.unsqueeze(0), block=self.block)
        return c


class GroupedProduct(torch.nn.Module):
    """Problem 8: a product for each expert of a mixture."""

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, scale_x: torch.Tensor, scale_weight: torch.Tensor
    ) -> torch.Tensor:
        """``x[E, M, K] @ weight[E, N, K].mT`` in bfloat16."""
        c = torch.empty((len(x), x.shape[1], weight.shape[1]), dtype=ROUNDED, device=x.device)
        multiply(c, x, weight.mT, scale_x, scale_weight)
        return c
