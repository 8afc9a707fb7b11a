"""``fused_matmul_reduce_scatter``: tiles of the product go straight into the memory of the rank that adds them up.

With n ranks, A of shape (M, K) and B of shape (K, N), each rank stores ``M * N * (n - 1) / n`` elements in other
ranks' buffers while it multiplies: the links work as the tensor cores do. A buffer has a slot for each rank that
writes to it. When all have written, a rank adds its n slots, which lie in its own memory, in float32 and in the order
of the ranks.

What travels is rounded to the dtype of A, as it is where a matmul and a reduce-scatter follow one another.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.distributed._symmetric_memory import get_symm_mem_workspace

#: Symmetric memory that a product may take, bytes.
MOST_BYTES = 256 << 20
#: Tiles of the product (rows, columns) and the depth of a step, by bytes of an element; float32 is multiplied as it is,
#: without tensor cores.
TILES = {2: (128, 128, 64), 4: (64, 64, 32)}
ADDED_AT_A_TIME = 4096
#: Channels of the barriers: before the slots are added, and after it.
WRITTEN, READ = 0, 1


@triton.jit
def multiply_kernel(
    a,
    b,
    buffers_address,
    rows,
    columns,
    depth,
    a_row,
    a_column,
    b_row,
    b_column,
    row_step,
    column_step,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """One tile of part p of ``a @ b``, stored in slot RANK of rank p's buffer.

    A part has ``rows`` by ``columns`` elements and begins at row ``p * row_step`` and column ``p * column_step`` of
    the product. A rank begins with its right neighbour's part and ends with its own, so that no rank is written to by
    all at once.
    """
    part = (RANK + 1 + tl.program_id(1)) % RANKS
    tiles = tl.cdiv(columns, COLUMNS)
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    row_inside, column_inside = row < rows, column < columns
    inner = tl.arange(0, DEPTH)
    a_tile = a + (part * row_step + row).to(tl.int64)[:, None] * a_row + inner[None, :] * a_column
    b_tile = b + inner.to(tl.int64)[:, None] * b_row + (part * column_step + column).to(tl.int64)[None, :] * b_column
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        left = depth - start
        x = tl.load(a_tile, mask=row_inside[:, None] & (inner < left)[None, :], other=0.0)
        y = tl.load(b_tile, mask=(inner < left)[:, None] & column_inside[None, :], other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
        a_tile += DEPTH * a_column
        b_tile += DEPTH * b_row
    buffers = buffers_address.to(tl.pointer_type(tl.int64))
    slot = tl.multiple_of(tl.load(buffers + part).to(a.dtype), 16) + RANK * rows * columns
    places = row[:, None] * columns + column[None, :]
    tl.store(slot + places, total.to(a.dtype.element_ty), mask=row_inside[:, None] & column_inside[None, :])


@triton.jit
def add_kernel(out, slots, elements, RANKS: tl.constexpr, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = sum or mean over ranks of slots[r, i]."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < elements
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for rank in tl.static_range(RANKS):
        # Past the first-level cache: other devices wrote it.
        total += tl.load(slots + rank * elements + offsets, mask=inside, cache_modifier=".cg").to(tl.float32)
    if MEAN:
        total = total / RANKS
    tl.store(out + offsets, total.to(out.dtype.element_ty), mask=inside)


def fused_matmul_reduce_scatter__default_kernel_impl(
    A: torch.Tensor,
    B: torch.Tensor,
    reduce_op: str,
    scatter_dim: int,
    group_name: str,
) -> torch.Tensor:
    """A rank's part along ``scatter_dim`` of the sum or mean of all ranks' ``A @ B``; A is (M, K), B is (K, N)."""
    ranks = torch.distributed.get_world_size(torch.distributed.distributed_c10d._resolve_process_group(group_name))
    sizes = [A.shape[0], B.shape[-1]]
    needed = sizes[0] * sizes[1] * A.element_size()
    if A.device.type != "cuda" or A.dim() != 2 or A.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise NotImplementedError(f"{A.dtype} of {A.dim()} dimensions on {A.device.type}")
    if reduce_op not in ("sum", "avg") or sizes[scatter_dim] % ranks or not 0 < needed <= MOST_BYTES:
        raise NotImplementedError(f"{reduce_op} of {sizes} in {ranks} parts along {scatter_dim}")
    steps = [0, 0]
    sizes[scatter_dim] //= ranks
    steps[scatter_dim] = sizes[scatter_dim]
    rows, columns = sizes
    memory = get_symm_mem_workspace(group_name, needed)
    tile_rows, tile_columns, tile_depth = TILES[A.element_size()]
    tiles = triton.cdiv(rows, tile_rows) * triton.cdiv(columns, tile_columns)
    multiply_kernel[(tiles, ranks)](
        A,
        B,
        memory.buffer_ptrs_dev,
        rows,
        columns,
        A.shape[1],
        *A.stride(),
        *B.stride(),
        *steps,
        RANK=memory.rank,
        RANKS=ranks,
        ROWS=tile_rows,
        COLUMNS=tile_columns,
        DEPTH=tile_depth,
        num_warps=8,
        num_stages=3,
    )
    memory.barrier(channel=WRITTEN)
    result = torch.empty(rows, columns, dtype=A.dtype, device=A.device)
    slots = memory.get_buffer(memory.rank, (ranks, rows, columns), A.dtype)
    add_kernel[(triton.cdiv(result.numel(), ADDED_AT_A_TIME),)](
        result, slots, result.numel(), RANKS=ranks, MEAN=reduce_op == "avg", BLOCK=ADDED_AT_A_TIME, num_warps=8
    )
    memory.barrier(channel=READ)  # Until then nobody writes to a slot again.
    return result
