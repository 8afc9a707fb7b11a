"""Products of groups of rows with a matrix each, as the experts of a mixture compute them.

Where the groups end is told by a tensor on the device, so the host launches as many programs as there can be tiles, and
each program looks its group up: it adds up how many tiles the groups before it have. Three forms, with groups ``g``:

- rows in groups: ``c_MN[m] = a_MK[m] @ b_GKN[g]`` for the rows of a group, or the same for columns, both transposed;
- terms in groups: ``c_GMN[g] = a_MK[:, k] @ b_KN[k, :]`` over the terms of a group, as weights get their gradients;
- matrices of one size, a batch.

Compulsory traffic: a and c once, and b of the groups that are not empty. Rows behind the last group are not written.

Suffixes: ``_G`` groups, the others as in :mod:`.matmul`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, converted, index_type
from ..common.launch import (
    INTERPRETED,
    compute_type,
    constants,
    launch,
    layout_of,
    loop_bound,
    pdl_prologue,
    require_served,
)
from ..common.type_rules import SINGLE
from .matmul import GROUP, ProductTile, divisor, dot_precision, multiply_type, product, product_tile, vector_width
from .product_tiles import Layout, Math, in_range, known_multiple, matrix_strides, multiply_add, tile_origin

#: Whether a loop's bound has to be known beforehand: see launch.loop_bound.
_BOUND_IS_CONSTANT = tl.constexpr(INTERPRETED)
#: Rows of the smallest tile that tensor cores multiply.
_FEWEST_ROWS = 16


@triton.jit
def group_of(
    tile: tl.tensor, ends_ptr: tl.tensor, groups: tl.tensor, GROUPS: tl.constexpr, BLOCK: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """The group that a tile belongs to, the tile's first row and the group's end; beyond all tiles, ``groups``."""
    g = tl.arange(0, GROUPS)
    end_G = tl.load(ends_ptr + g, mask=g < groups, other=0)
    begin_G = tl.load(ends_ptr + g - 1, mask=(g > 0) & (g < groups), other=0)
    tiles_G = tl.cdiv(end_G - begin_G, BLOCK)
    last_G = tl.cumsum(tiles_G, axis=0)
    group = tl.sum(((last_G <= tile) & (g < groups)).to(tl.int32), axis=0)
    first_G = begin_G + (tile - (last_G - tiles_G)) * BLOCK
    first = tl.sum(tl.where(g == group, first_G, 0), axis=0)
    return group, first, tl.sum(tl.where(g == group, end_G, 0), axis=0)


@triton.jit
def grouped_rows_kernel(
    c_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    groups: tl.tensor,
    tiles_M: tl.tensor,
    N: tl.tensor,
    K: tl.tensor,
    c_strides_MN: tl.tuple,
    a_strides_MK: tl.tuple,
    b_strides_GKN: tl.tuple,
    steps: tl.tensor,
    MATH: tl.tuple,
    LAYOUT: tl.tuple,
    INDEX: tl.constexpr,
    EVEN_K: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """One tile of c, of rows of one group; MATH and LAYOUT as for :func:`~.matmul.matmul_kernel`."""
    pdl_prologue()
    down, first_N = tile_origin(tiles_M * BLOCK_M, N, GROUP, BLOCK_M, BLOCK_N, INDEX)
    group, first_M, end_M = group_of((down // BLOCK_M).to(tl.int32), ends_ptr, groups, GROUPS, BLOCK_M)
    if group < groups:
        m, n = first_M.to(INDEX) + tl.arange(0, BLOCK_M), first_N + tl.arange(0, BLOCK_N)
        k = tl.arange(0, BLOCK_K).to(INDEX)
        # Rows beyond the group and columns beyond N read what is there, and are not written.
        inside_m, inside_n = tl.minimum(m, end_M - 1), in_range(n, N, LAYOUT.N_CONTIGUOUS, LAYOUT.B_VEC)
        _, a_stride_M, a_stride_K = matrix_strides((0, a_strides_MK[0], a_strides_MK[1]), False, LAYOUT.A_VEC)
        b_stride_G, b_stride_K, b_stride_N = matrix_strides(b_strides_GKN, not LAYOUT.N_CONTIGUOUS, LAYOUT.B_VEC)
        a_ptr_MK = a_ptr + inside_m[:, None] * a_stride_M + k[None, :] * a_stride_K
        b_ptr_KN = b_ptr + group.to(INDEX) * b_stride_G
        b_ptr_KN = b_ptr_KN + (k[:, None] * b_stride_K + inside_n[None, :] * b_stride_N)
        c_MN = tl.zeros([BLOCK_M, BLOCK_N], MATH.ACCUMULATE)
        for step in range(steps):
            if EVEN_K:
                a_MK, b_KN = tl.load(a_ptr_MK), tl.load(b_ptr_KN)
            else:
                left = known_multiple(K, LAYOUT.K_VEC) - step * BLOCK_K
                a_MK = tl.load(a_ptr_MK, mask=k[None, :] < left, other=0)
                b_KN = tl.load(b_ptr_KN, mask=k[:, None] < left, other=0)
            c_MN = multiply_add(a_MK, b_KN, c_MN, MATH.MULTIPLY, MATH.PRECISION)
            a_ptr_MK += BLOCK_K * a_stride_K
            b_ptr_KN += BLOCK_K * b_stride_K
        c_ptr_MN = c_ptr + m[:, None] * known_multiple(c_strides_MN[0], LAYOUT.C_VEC) + n[None, :] * c_strides_MN[1]
        mask = (m < end_M)[:, None] & (n < known_multiple(N, LAYOUT.C_VEC))[None, :]
        tl.store(c_ptr_MN, converted(c_MN, c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def grouped_terms_kernel(
    c_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    a_strides_MK: tl.tuple,
    b_strides_KN: tl.tuple,
    most_steps: tl.tensor,
    MATH: tl.tuple,
    LAYOUT: tl.tuple,
    INDEX: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """One tile of the row-major c of one group: a sum over the terms of the group, 0 where it has none."""
    pdl_prologue()
    first_M, first_N = tile_origin(M, N, GROUP, BLOCK_M, BLOCK_N, INDEX)
    group = tl.program_id(1).to(INDEX)
    end = tl.load(ends_ptr + group)
    begin = tl.load(ends_ptr + group - 1, mask=group > 0, other=0)
    m, n = first_M + tl.arange(0, BLOCK_M), first_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K).to(INDEX)
    inside_m = in_range(m, M, LAYOUT.M_CONTIGUOUS, LAYOUT.A_VEC)
    inside_n = in_range(n, N, LAYOUT.N_CONTIGUOUS, LAYOUT.B_VEC)
    a_strides_BMK, b_strides_BKN = (0, a_strides_MK[0], a_strides_MK[1]), (0, b_strides_KN[0], b_strides_KN[1])
    _, a_stride_M, a_stride_K = matrix_strides(a_strides_BMK, LAYOUT.M_CONTIGUOUS, LAYOUT.A_VEC)
    _, b_stride_K, b_stride_N = matrix_strides(b_strides_BKN, not LAYOUT.N_CONTIGUOUS, LAYOUT.B_VEC)
    a_ptr_MK = a_ptr + inside_m[:, None] * a_stride_M + (begin + k)[None, :] * a_stride_K
    b_ptr_KN = b_ptr + (begin + k)[:, None] * b_stride_K + inside_n[None, :] * b_stride_N
    c_MN = tl.zeros([BLOCK_M, BLOCK_N], MATH.ACCUMULATE)
    steps = most_steps if _BOUND_IS_CONSTANT else tl.cdiv(end - begin, BLOCK_K)
    for step in range(steps):
        left = end - begin - step * BLOCK_K
        a_MK = tl.load(a_ptr_MK, mask=k[None, :] < left, other=0)
        b_KN = tl.load(b_ptr_KN, mask=k[:, None] < left, other=0)
        c_MN = multiply_add(a_MK, b_KN, c_MN, MATH.MULTIPLY, MATH.PRECISION)
        a_ptr_MK += BLOCK_K * a_stride_K
        b_ptr_KN += BLOCK_K * b_stride_K
    columns = known_multiple(N, LAYOUT.C_VEC)
    c_ptr_MN = c_ptr + group * M * columns + m[:, None] * columns + n[None, :]
    tl.store(c_ptr_MN, converted(c_MN, c_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < columns)[None, :])


def grouped_mm(
    self: torch.Tensor,
    mat2: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Products of the groups of ``self`` with those of ``mat2``.

    Args:
        self: of shape (M, K), or (G, M, K).
        mat2: of shape (G, K, N), or (K, N).
        offs: where each group ends, G numbers of type int32 that do not fall: among the M rows of a two-dimensional
            ``self``, the N columns of a two-dimensional ``mat2``, or the K terms where both have two dimensions. None
            where both have three.
        bias: none is served.
        out_dtype: none but that of the factors is served.

    Returns:
        (M, N), or (G, M, N) where both factors have as many dimensions.

    Raises:
        NotImplementedError: what is not served.
        ValueError: shapes or offsets that do not fit.
        TypeError: offsets of another type.
    """
    require_served(self, mat2, dtypes=SINGLE)
    require_served(offs)
    if bias is not None or out_dtype not in (None, self.dtype) or self.dtype != mat2.dtype:
        raise NotImplementedError("a bias and mixed types are not served")
    ndims = self.ndim, mat2.ndim
    if ndims not in ((2, 2), (2, 3), (3, 2), (3, 3)) or self.shape[-1] != mat2.shape[-2]:
        raise ValueError(f"no groups are multiplied of {list(self.shape)} and {list(mat2.shape)}")
    if (offs is None) != (ndims == (3, 3)):
        raise ValueError("offsets are needed unless both factors have three dimensions")
    if offs is None:
        if self.shape[0] != mat2.shape[0]:
            raise ValueError(f"{self.shape[0]} matrices are not multiplied with {mat2.shape[0]}")
        return product(self, mat2)
    if offs.dtype != torch.int32:
        raise TypeError(f"offsets are int32, not {offs.dtype}")
    if offs.ndim != 1 or any(factor.ndim == 3 and factor.shape[0] != offs.shape[0] for factor in (self, mat2)):
        raise ValueError("a group has one offset")
    ends = offs.contiguous()
    if ndims == (2, 2):
        return _terms_in_groups(self, mat2, ends)
    rows, columns = self.shape[-2], mat2.shape[-1]
    out = torch.empty((rows, columns), dtype=self.dtype, device=self.device)
    if self.ndim == 2:
        _rows_in_groups(out, self, mat2, ends)
    else:
        _rows_in_groups(out.T, mat2.T, self.mT, ends)
    return out


def _rows_in_groups(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> None:
    """``c[m] = a[m] @ b[g]`` for the rows of each group."""
    (M, K), (G, _, N) = a.shape, b.shape
    if c.numel() == 0 or G == 0:
        return
    precision = dot_precision(a.dtype, K)
    tile = _tile(G, triton.cdiv(M, G), N, K, a.dtype, precision)
    # A group whose rows do not fill their last tile takes one more; as many groups as there are rows are not empty.
    tiles_M = M // tile.m + min(G, M)
    layout = Layout(
        M_CONTIGUOUS=False,
        N_CONTIGUOUS=b.stride(2) == 1,
        A_VEC=vector_width(a.unsqueeze(0)) if a.stride(1) == 1 else 1,
        B_VEC=vector_width(b.mT),
        K_VEC=divisor(K),
        C_VEC=divisor(N) if c.stride(1) == 1 else 1,
    )
    launch(
        grouped_rows_kernel,
        (tiles_M * triton.cdiv(N, tile.n),),
        c.device,
        c,
        a,
        b,
        ends,
        G,
        tiles_M,
        N,
        K,
        c.stride(),
        a.stride(),
        b.stride(),
        loop_bound(triton.cdiv(K, tile.k)),
        **_constants(a, b, c, tile, precision),
        LAYOUT=constants(layout),
        EVEN_K=K % tile.k == 0,
        GROUPS=triton.next_power_of_2(G),
    )


def _terms_in_groups(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """``c[g] = a[:, k] @ b[k, :]`` over the terms of each group."""
    (M, K), N, G = a.shape, b.shape[1], ends.shape[0]
    c = torch.empty((G, M, N), dtype=a.dtype, device=a.device)
    if c.numel() == 0:
        return c
    precision = dot_precision(a.dtype, triton.cdiv(K, G))
    tile = product_tile(G, M, N, triton.cdiv(K, G), a.dtype, precision)
    # Where a group begins among the terms is not known: those are read one by one.
    layout = Layout(
        M_CONTIGUOUS=a.stride(0) == 1,
        N_CONTIGUOUS=b.stride(1) == 1,
        A_VEC=vector_width(a.unsqueeze(0)) if a.stride(0) == 1 else 1,
        B_VEC=vector_width(b.T.unsqueeze(0)) if b.stride(1) == 1 else 1,
        K_VEC=1,
        C_VEC=divisor(N),
    )
    launch(
        grouped_terms_kernel,
        (triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n), G),
        c.device,
        c,
        a,
        b,
        ends,
        M,
        N,
        a.stride(),
        b.stride(),
        loop_bound(triton.cdiv(K, tile.k)),
        **_constants(a, b, c, tile, precision),
        LAYOUT=constants(layout),
    )
    return c


def _tile(G: int, rows: int, N: int, K: int, dtype: torch.dtype, precision: str | None) -> ProductTile:
    """That of a product, but no higher than the groups are on average: each wastes half a tile."""
    tile = product_tile(G, rows, N, K, dtype, precision)
    return tile._replace(m=max(min(tile.m, triton.next_power_of_2(rows)), _FEWEST_ROWS))


def _constants(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, tile: ProductTile, precision: str | None
) -> dict[str, object]:
    reach = [Geometry(shape, (strides,)) for shape, strides in map(layout_of, (a, b, c))]
    return {
        "MATH": constants(Math(compute_type(a.dtype), multiply_type(a.dtype), precision)),
        "INDEX": max((index_type(part) for part in reach), key=lambda index: index.primitive_bitwidth),
        "GROUP": GROUP,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
