"""Products in E4M3 of groups of rows with a matrix each, as the experts of a mixture compute them.

``c[m, n] = (sum over k of a[m, k] * b[g, k, n]) * scale_a[m] * scale_b[g, n]`` for the rows m of group g. A tensor on
the device tells where groups end; so there are as many programs as there can be tiles, and each looks its group up, as
in grouped_matmul.py. Sums are made as in scaled_products.py. Rows behind the last group are not written.

Suffixes: ``_G`` groups, the others as in :mod:`.scaled_products`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, converted, index_type
from ..common.launch import launch, layout_of, loop_bound, pdl_prologue, require_served
from ..matmul.grouped_matmul import group_of
from ..matmul.matmul import GROUP
from ..matmul.product_tiles import tile_origin
from .formats import FLOAT8, ROUNDED, require_low, scale_at
from .scaled_products import multiply, products, tile_of


@triton.jit
def scaled_groups_kernel(
    c_ptr: tl.tensor,
    a_ptr: tl.tensor,
    b_ptr: tl.tensor,
    scale_a_ptr: tl.tensor,
    scale_b_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    groups: tl.tensor,
    tiles_M: tl.tensor,
    N: tl.tensor,
    K: tl.tensor,
    a_strides_MK: tl.tuple,
    b_strides_GKN: tl.tuple,
    steps: tl.tensor,
    INDEX: tl.constexpr,
    EVEN_K: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """One tile of the contiguous c, of rows of one group; scales are contiguous."""
    pdl_prologue()
    down, first_N = tile_origin(tiles_M * BLOCK_M, N, GROUP, BLOCK_M, BLOCK_N, INDEX)
    group, first_M, end_M = group_of((down // BLOCK_M).to(tl.int32), ends_ptr, groups, GROUPS, BLOCK_M)
    if group < groups:
        m, n = first_M.to(INDEX) + tl.arange(0, BLOCK_M), first_N + tl.arange(0, BLOCK_N)
        k = tl.arange(0, BLOCK_K).to(INDEX)
        # Rows beyond the group and columns beyond N read what is there, and are not written.
        inside_m, inside_n = tl.minimum(m, end_M - 1), tl.minimum(n, N - 1)
        a_ptr_MK = a_ptr + inside_m[:, None] * a_strides_MK[0] + k[None, :] * a_strides_MK[1]
        b_ptr_KN = b_ptr + group.to(INDEX) * b_strides_GKN[0]
        b_ptr_KN = b_ptr_KN + k[:, None] * b_strides_GKN[1] + inside_n[None, :] * b_strides_GKN[2]
        c_MN = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        tl.assume(steps > 0)
        for step in range(steps):
            if EVEN_K:
                a_MK, b_KN = tl.load(a_ptr_MK), tl.load(b_ptr_KN)
            else:
                left = K - step * BLOCK_K
                a_MK = tl.load(a_ptr_MK, mask=k[None, :] < left, other=0.0)
                b_KN = tl.load(b_ptr_KN, mask=k[:, None] < left, other=0.0)
            c_MN += products(a_MK, b_KN)
            a_ptr_MK += BLOCK_K * a_strides_MK[1]
            b_ptr_KN += BLOCK_K * b_strides_GKN[1]
        scale_N = scale_at(scale_b_ptr + group.to(INDEX) * N + inside_n)
        c_MN *= scale_at(scale_a_ptr + inside_m)[:, None] * scale_N[None, :]
        inside_MN = (m < end_M)[:, None] & (n < N)[None, :]
        tl.store(c_ptr + m[:, None] * N + n[None, :], converted(c_MN, c_ptr.dtype.element_ty), mask=inside_MN)


def scaled_grouped_mm(
    self: torch.Tensor,
    mat2: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """Products of the groups of ``self`` with those of ``mat2``, scaled by rows and columns, in bfloat16.

    Args:
        self: of shape (M, K), or (G, M, K), in E4M3 or E5M2.
        mat2: of shape (G, K, N).
        scale_a: one for each row of ``self``, in float32.
        scale_b: of shape (G, N), in float32.
        offs: where each group of rows ends, G numbers of type int32 that do not fall; None where ``self`` has three
            dimensions.
        bias: none is served.
        scale_result: none is served.
        out_dtype: bfloat16, which None stands for as well.
        use_fast_accum: allows less precise sums, which are not used.

    Raises:
        NotImplementedError: what is not served: groups of terms or of columns among it.
        ValueError: shapes or offsets that do not fit.
    """
    del use_fast_accum
    if bias is not None or scale_result is not None or out_dtype not in (None, ROUNDED):
        raise NotImplementedError("a bias, a scale of the result and other results than bfloat16 are not served")
    require_served(scale_a, scale_b, dtypes=(torch.float32,))
    if mat2.ndim != 3 or self.ndim not in (2, 3) or (offs is None) != (self.ndim == 3):
        raise NotImplementedError(f"groups of {self.ndim} and {mat2.ndim} dimensions are not served")
    groups, K, N = mat2.shape
    if self.shape[-1] != K or tuple(scale_a.shape) != tuple(self.shape[:-1]) or tuple(scale_b.shape) != (groups, N):
        raise ValueError(f"no groups are multiplied of {list(self.shape)} and {list(mat2.shape)} with these scales")
    c = torch.empty((*self.shape[:-1], N), dtype=ROUNDED, device=self.device)
    if offs is None:
        if len(self) != groups:
            raise ValueError(f"{len(self)} matrices are not multiplied with {groups}")
        multiply(c, self, mat2, scale_a.unsqueeze(-1), scale_b.unsqueeze(-1))
        return c
    if offs.dtype != torch.int32 or tuple(offs.shape) != (groups,):
        raise ValueError("a group has one offset of type int32")
    _rows_in_groups(c, self, mat2, scale_a, scale_b, offs)
    return c


def _rows_in_groups(
    c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, ends: torch.Tensor
) -> None:
    require_low(a, b, dtypes=FLOAT8)
    require_served(ends, dtypes=(torch.int32,))
    if not (scale_a.is_contiguous() and scale_b.is_contiguous() and ends.is_contiguous()):
        raise NotImplementedError("scales and offsets that are not contiguous are not served")
    (M, K), (groups, _, N) = a.shape, b.shape
    if not c.numel() or not groups:
        return
    tile = tile_of(groups, triton.cdiv(M, groups), N, c.device)
    reach = [Geometry(shape, (strides,)) for shape, strides in map(layout_of, (a, b, c))]
    # A group whose rows do not fill their last tile takes one more; as many groups as there are rows are not empty.
    tiles_M = M // tile.m + min(groups, M)
    launch(
        scaled_groups_kernel,
        (tiles_M * triton.cdiv(N, tile.n),),
        c.device,
        c,
        a,
        b,
        scale_a,
        scale_b,
        ends,
        groups,
        tiles_M,
        N,
        K,
        a.stride(),
        b.stride(),
        loop_bound(max(1, triton.cdiv(K, tile.k))),
        INDEX=max((index_type(part) for part in reach), key=lambda index: index.primitive_bitwidth),
        EVEN_K=K % tile.k == 0 and K > 0,
        GROUP=GROUP,
        GROUPS=triton.next_power_of_2(groups),
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        BLOCK_K=tile.k,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
