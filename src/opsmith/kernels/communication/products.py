"""Matrix products that talk while they multiply: all-gather + GEMM, GEMM + reduce-scatter, GEMM + all-reduce.

With n ranks; C is the product of A (M, K) and B (K, N) where A is gathered, or a sum over ranks of such products::

    all-gather + GEMM      A's rows lie M / n on each rank. COPIERS programs of each rank push them to the others, a row
                           of tiles at a time; programs that multiply wait for the row of tiles that they need, and
                           begin with the rows that were here before.
    GEMM + reduce-scatter  a tile of the product goes straight into the memory of the rank that adds it up. When all
                           have been written, that rank adds its n slots, which lie in its own memory.
    GEMM + all-reduce      the same, and then every rank reads the sums of the others. A product of few bytes is
                           written into this rank's memory whole, and all ranks read all of it: all_reduce.py. Of few
                           rows one kernel does it all: a block pushes its columns to every rank, meets, adds them up.

Over each rank's links go ``M K (n - 1) / n`` elements, ``M N (n - 1) / n``, and twice that; of these the first and the
second, and the first half of the third, move while tensor cores work. What travels is rounded to the dtype of A, as it
is where product and collective follow one another; sums are in float32, in the order of the ranks.

Suffixes: ``_M`` rows of a tile, ``_N`` its columns, ``_K`` what is summed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.launch import INTERPRETED, multiprocessors
from ..matmul.matmul import ALONE, multiply_type, write_product
from ..matmul.product_tiles import multiply_add
from .all_reduce import reduce_buffers
from .symmetric import (
    PAD_SIGNALS,
    WARPS,
    Group,
    blocks_and_share,
    buffer_of,
    copy,
    launch,
    meet,
    require_device,
    step_of,
)

#: Programs that push rows while the others multiply: so many that they fill the links of a rank.
COPIERS = 16
#: Where slots and signals begin: a multiple of 16 elements, whatever they are, which Triton sees.
ALIGNED_BYTES = 128
#: Of an entry of a table of buffers.
ADDRESS_BYTES = 8
#: A product of so many bytes is pushed to the ranks that add it up; a smaller one is read by all.
PUSHED_BYTES = 4 << 20


class Tile(NamedTuple):
    """Rows and columns of a tile, terms of a step, and how it is launched."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


#: By bytes of an element; float32 is multiplied as 3xTF32.
TILES = {2: Tile(128, 128, 64, 8, 3), 4: Tile(64, 64, 32, 4, 3)}
#: A half type's product of so many rows is made of tiles so narrow that 4,096 columns fill a GPU's multiprocessors, and
#: so deep that each has 40 KB of its factor on the way: such a product takes as long as its factor takes to be read.
#: On two H200, split sums, a second kernel that adds them and an all-reduce had taken 1.2 times as long as NCCL.
FEW_ROWS = 64
FEW_TILE = Tile(64, 32, 128, 4, 6)


@triton.jit
def tile_product(
    a: tl.tensor,
    b: tl.tensor,
    row_M: tl.tensor,
    column_N: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    depth: tl.tensor,
    a_strides: tl.tuple,
    b_strides: tl.tuple,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
    EVEN_K: tl.constexpr,
    DEPTH: tl.constexpr,
) -> tl.tensor:
    """``a[row_M] @ b[:, column_N]`` in float32; rows and columns beyond the last read what is there."""
    k = tl.arange(0, DEPTH).to(tl.int64)
    a_MK = a + (row_M % rows).to(tl.int64)[:, None] * a_strides[0] + k[None, :] * a_strides[1]
    b_KN = b + k[:, None] * b_strides[0] + (column_N % columns).to(tl.int64)[None, :] * b_strides[1]
    c_MN = tl.zeros((row_M.shape[0], column_N.shape[0]), tl.float32)
    for start in range(0, depth, DEPTH):
        if EVEN_K:
            x_MK, y_KN = tl.load(a_MK), tl.load(b_KN)
        else:
            x_MK = tl.load(a_MK, mask=(k < depth - start)[None, :], other=0.0)
            y_KN = tl.load(b_KN, mask=(k < depth - start)[:, None], other=0.0)
        c_MN = multiply_add(x_MK, y_KN, c_MN, MULTIPLY, PRECISION)
        a_MK += DEPTH * a_strides[1]
        b_KN += DEPTH * b_strides[0]
    return c_MN


# ---------------------------------------------------------------- all-gather + GEMM


@triton.jit
def push_rows(
    x: tl.tensor,
    arrived_at: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    rows: tl.tensor,
    depth: tl.tensor,
    flags: tl.tensor,
    slot_size: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    COPIERS: tl.constexpr,
    STEP: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """This program's share of each row of tiles of x, into slot RANK of the other ranks' memory, each with a signal."""
    block = tl.program_id(0)
    meet(pads, block, RANK, RANKS, PEERS)  # Nobody's signals are those of an earlier call.
    share = tl.cdiv(ROWS * depth, COPIERS)
    share = tl.cdiv(share, 8) * 8
    tiles = tl.cdiv(rows, ROWS)
    whole = tl.cast(rows, tl.int64) * depth
    for tile in range(tiles):
        begin = tl.cast(tile, tl.int64) * ROWS * depth
        end = tl.minimum(begin + ROWS * depth, whole)
        first = begin + block * share
        for distance in tl.static_range(1, RANKS):
            peer = (RANK + distance) % RANKS
            slot = buffer_of(buffers, peer, x) + flags + tl.cast(slot_size, tl.int64) * RANK
            copy(slot, x, first, tl.minimum(first + share, end), STEP)
        tl.debug_barrier()
        for distance in tl.static_range(1, RANKS):
            signals = buffer_of(buffers, (RANK + distance) % RANKS, arrived_at)
            tl.atomic_add(signals + RANK * tiles + tile, 1, sem="release", scope="sys")


@triton.jit
def gather_multiply_kernel(
    c: tl.tensor,
    x: tl.tensor,
    b: tl.tensor,
    arrived: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    depth: tl.tensor,
    flags: tl.tensor,
    slot_size: tl.tensor,
    b_strides: tl.tuple,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    COPIERS: tl.constexpr,
    STEP: tl.constexpr,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
    EVEN_K: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    """The first COPIERS programs push x; each other one makes a tile of ``c = (x of all ranks) @ b``.

    ``arrived`` counts the copiers of each rank whose share of a row of tiles is here. It lies at the start of this
    rank's buffer; ``flags`` elements of x further are the slots of the ranks, (rows, depth) in ``slot_size`` each.
    """
    if tl.program_id(0) < COPIERS:
        push_rows(x, arrived, buffers, pads, rows, depth, flags, slot_size, RANK, RANKS, PEERS, COPIERS, STEP, ROWS)
    else:
        number = tl.program_id(0) - COPIERS
        tiles_M, tiles_N = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
        owner = (RANK + number // (tiles_M * tiles_N)) % RANKS
        tile = number % (tiles_M * tiles_N)
        if owner != RANK:
            while tl.load(arrived + owner * tiles_M + tile // tiles_N, volatile=True) < COPIERS:
                pass
            # What comes after it sees what the copiers have written before they signalled.
            tl.atomic_add(arrived + owner * tiles_M + tile // tiles_N, 0, sem="acquire", scope="sys")
            tl.debug_barrier()
        slot = buffer_of(buffers, RANK, x) + flags + tl.cast(slot_size, tl.int64) * owner
        a = tl.where(owner == RANK, x.to(tl.int64), slot.to(tl.int64)).to(x.dtype)
        a = tl.multiple_of(a, 16)  # The host sees to it that both are.
        row_M = (tile // tiles_N) * ROWS + tl.arange(0, ROWS)
        column_N = (tile % tiles_N) * COLUMNS + tl.arange(0, COLUMNS)
        c_MN = tile_product(
            a, b, row_M, column_N, rows, columns, depth, (depth, 1), b_strides, MULTIPLY, PRECISION, EVEN_K, DEPTH
        )
        place_M = (tl.cast(owner, tl.int64) * rows + row_M) * columns
        inside = (row_M < rows)[:, None] & (column_N < columns)[None, :]
        tl.store(c + place_M[:, None] + column_N[None, :], c_MN.to(c.dtype.element_ty), mask=inside)


# ---------------------------------------------------------------- GEMM + reduce-scatter, GEMM + all-reduce


@triton.jit
def multiply_push_kernel(
    a: tl.tensor,
    b: tl.tensor,
    buffers: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    depth: tl.tensor,
    part_rows: tl.tensor,
    part_columns: tl.tensor,
    a_strides: tl.tuple,
    b_strides: tl.tuple,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
    EVEN_K: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    """A tile of part p of the (rows, columns) of ``a @ b``, into slot RANK of rank p's buffer.

    Parts have ``part_rows`` by ``part_columns`` elements and lie side by side along the dimension that is divided; the
    last may be smaller. A rank begins with its right neighbour's part and ends with its own, so that no rank is
    written to by all at once.
    """
    part = (RANK + 1 + tl.program_id(1)) % RANKS
    tiles_N = tl.cdiv(part_columns, COLUMNS)
    row_M = (tl.program_id(0) // tiles_N) * ROWS + tl.arange(0, ROWS)
    column_N = (tl.program_id(0) % tiles_N) * COLUMNS + tl.arange(0, COLUMNS)
    first_row = tl.where(part_rows < rows, part * part_rows, 0)
    first_column = tl.where(part_columns < columns, part * part_columns, 0)
    c_MN = tile_product(
        a,
        b,
        first_row + row_M,
        first_column + column_N,
        rows,
        columns,
        depth,
        a_strides,
        b_strides,
        MULTIPLY,
        PRECISION,
        EVEN_K,
        DEPTH,
    )
    slot = buffer_of(buffers, part, a) + tl.cast(RANK, tl.int64) * part_rows * part_columns
    inside_M = (row_M < part_rows) & (first_row + row_M < rows)
    inside_N = (column_N < part_columns) & (first_column + column_N < columns)
    place = row_M.to(tl.int64)[:, None] * part_columns + column_N[None, :]
    tl.store(slot + place, c_MN.to(a.dtype.element_ty), mask=inside_M[:, None] & inside_N[None, :])


@triton.jit
def add_slots(
    target: tl.tensor,
    slots: tl.tensor,
    elements: tl.tensor,
    first: tl.tensor,
    last: tl.tensor,
    RANKS: tl.constexpr,
    MEAN: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """target[i] = sum or mean over ranks of slots[r * elements + i], for i from ``first`` to ``last``."""
    for start in range(first, last, STEP):
        offsets = start + tl.arange(0, STEP)
        inside = offsets < last
        total = tl.zeros((STEP,), tl.float32)
        for rank in tl.static_range(RANKS):
            part = slots + tl.cast(elements, tl.int64) * rank + offsets
            total += tl.load(part, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
        if MEAN:
            total = total / RANKS
        tl.store(target + offsets, total.to(target.dtype.element_ty), mask=inside)


@triton.jit
def add_slots_kernel(
    out: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    part: tl.tensor,
    elements: tl.tensor,
    share: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    GATHERS: tl.constexpr,
    MEAN: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """Add this rank's slots, of ``part`` elements each, when all are written; if it GATHERS, read the others' sums too.

    ``out`` has this rank's part, or ``elements`` of all ranks' parts.
    """
    block = tl.program_id(0)
    first = block * share
    last = tl.minimum(first + share, part)
    own = buffer_of(buffers, RANK, out)
    meet(pads, block, RANK, RANKS, PEERS)
    if GATHERS:
        sums = tl.cast(part, tl.int64) * RANKS
        add_slots(own + sums, own, part, first, last, RANKS, MEAN, STEP)
        meet(pads, block, RANK, RANKS, PEERS)
        for distance in tl.static_range(RANKS):
            peer = (RANK + distance) % RANKS
            begin = tl.cast(part, tl.int64) * peer
            theirs = buffer_of(buffers, peer, out) + sums
            copy(out + begin, theirs, first, tl.minimum(last, elements - begin), STEP)
    else:
        add_slots(out, own, part, first, last, RANKS, MEAN, STEP)
    meet(pads, block, RANK, RANKS, PEERS)


@triton.jit
def multiply_sum_kernel(
    out: tl.tensor,
    a: tl.tensor,
    b: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    depth: tl.tensor,
    a_strides: tl.tuple,
    b_strides: tl.tuple,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
    EVEN_K: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    """``out = sum over ranks of a @ b``, of no more than ROWS rows; a block has columns of its own.

    A rank's slot of a buffer has its product tile by tile, so that a tile crosses a link in one piece.
    """
    block = tl.program_id(0)
    row_M = tl.arange(0, ROWS)
    tiles = tl.cdiv(columns, COLUMNS)
    place_MN = row_M[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside_MN = place_MN < rows * COLUMNS
    for tile in range(block, tiles, tl.num_programs(0)):
        column_N = tile * COLUMNS + tl.arange(0, COLUMNS)
        c_MN = tile_product(
            a, b, row_M, column_N, rows, columns, depth, a_strides, b_strides, MULTIPLY, PRECISION, EVEN_K, DEPTH
        )
        at = (RANK * tiles + tile) * rows * COLUMNS
        for distance in tl.static_range(1, RANKS + 1):
            # The peers' first: what they get has the longest way.
            slot = buffer_of(buffers, (RANK + distance) % RANKS, a) + at
            tl.store(slot + place_MN, c_MN.to(a.dtype.element_ty), mask=inside_MN)
    meet(pads, block, RANK, RANKS, PEERS)
    own = buffer_of(buffers, RANK, a)
    for tile in range(block, tiles, tl.num_programs(0)):
        column_N = tile * COLUMNS + tl.arange(0, COLUMNS)
        total_MN = tl.zeros((ROWS, COLUMNS), tl.float32)
        for rank in tl.static_range(RANKS):
            part = own + (rank * tiles + tile) * rows * COLUMNS + place_MN
            total_MN += tl.load(part, mask=inside_MN, other=0.0, cache_modifier=".cg").to(tl.float32)
        target = out + row_M[:, None] * columns + column_N[None, :]
        tl.store(target, total_MN.to(out.dtype.element_ty), mask=inside_MN & (column_N < columns)[None, :])
    meet(pads, block, RANK, RANKS, PEERS)


# ---------------------------------------------------------------- host side


def gather_product(x: torch.Tensor, b: torch.Tensor, group_name: str | None = None) -> torch.Tensor:
    """Problem 9: ``(x of all ranks) @ b``, of ``x[rows, K]``, as many on each rank, and this rank's ``b[K, N]``."""
    _require_factors(x, b)
    (rows, depth), columns = x.shape, b.shape[1]
    ranks = Group(0, group_name).ranks
    c = torch.empty((ranks * rows, columns), dtype=x.dtype, device=x.device)
    tile, x = _tile_of(rows, x), aligned(x)
    tiles = triton.cdiv(rows, tile.m)
    flag_bytes = triton.cdiv(4 * ranks * tiles, ALIGNED_BYTES) * ALIGNED_BYTES
    slot_bytes = triton.cdiv(x.numel() * x.element_size(), ALIGNED_BYTES) * ALIGNED_BYTES
    group = Group(flag_bytes + ranks * slot_bytes, group_name)
    arrived = group.own((ranks * tiles,), torch.int32)
    arrived.zero_()
    launch(
        gather_multiply_kernel,
        (COPIERS + ranks * tiles * triton.cdiv(columns, tile.n),),
        c,
        x,
        b,
        arrived,
        *group.tables,
        rows,
        columns,
        depth,
        flag_bytes // x.element_size(),
        slot_bytes // x.element_size(),
        b.stride(),
        **group.meta,
        COPIERS=COPIERS,
        STEP=2 * step_of(x),
        **_meta(x, tile, depth),
    )
    group.meet()
    return c


def aligned(x: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor that begins at a multiple of 16 bytes."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


def product_reduce_scatter(
    a: torch.Tensor, b: torch.Tensor, reduce_op: str, scatter_dim: int, group_name: str | None = None
) -> torch.Tensor:
    """A rank's part along ``scatter_dim`` of the sum or mean of all ranks' ``a[M, K] @ b[K, N]``.

    Raises:
        NotImplementedError: another reduction, or a dimension that the ranks do not divide.
    """
    _require_factors(a, b)
    shape = [len(a), b.shape[1]]
    group = Group(shape[0] * shape[1] * a.element_size(), group_name)
    if reduce_op not in ("sum", "avg") or shape[scatter_dim] % group.ranks:
        raise NotImplementedError(f"{reduce_op} of {shape} in {group.ranks} parts along {scatter_dim}")
    part = list(shape)
    part[scatter_dim] //= group.ranks
    out = torch.empty(part, dtype=a.dtype, device=a.device)
    _push_product(a, b, (part[0], part[1]), group)
    _add_slots(out, out.numel(), group, mean=reduce_op == "avg", gathers=False)
    return out


def product_all_reduce(a: torch.Tensor, b: torch.Tensor, group_name: str | None = None) -> torch.Tensor:
    """Problem 11: the sum of all ranks' ``a[M, K] @ b[K, N]``, on every rank."""
    _require_factors(a, b)
    out = torch.empty((len(a), b.shape[1]), dtype=a.dtype, device=a.device)
    size_bytes = out.numel() * out.element_size()
    ranks = Group(0, group_name).ranks
    rows = triton.cdiv(len(a), ranks)
    if _has_few_rows(a, b):
        _multiply_sum(out, a, b, group_name)
        return out
    if size_bytes < PUSHED_BYTES:
        group = Group(size_bytes, group_name)
        product_into_buffer(a, b, group)
        reduce_buffers(out.view(-1), None, group)
        return out
    part = rows * b.shape[1]
    group = Group((ranks + 1) * part * a.element_size(), group_name)
    _push_product(a, b, (rows, b.shape[1]), group)
    _add_slots(out, part, group, mean=False, gathers=True)
    return out


def product_into_buffer(a: torch.Tensor, b: torch.Tensor, group: Group) -> None:
    """``a @ b`` at the start of this rank's buffer."""
    if _has_few_rows(a, b):
        # This rank alone, whose buffer is the only one of the table that begins with it.
        own_table = group.tables[0] + ADDRESS_BYTES * group.rank
        _launch_push(a, b, (len(a), b.shape[1]), _few_tile(a), own_table, rank=0, ranks=1)
    elif len(a) and b.shape[1]:
        write_product(group.own((1, len(a), b.shape[1]), a.dtype), a.unsqueeze(0), b.unsqueeze(0), ALONE)


def product_scatter_rows(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Problem 10: a rank's rows of the sum of all ranks' products."""
    return product_reduce_scatter(x, weight, "sum", 0)


def _has_few_rows(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the product is one of few rows: the same on all ranks, whatever each of them sums over."""
    return 0 < len(a) <= FEW_ROWS and b.shape[1] > 0 and a.element_size() == 2


def _few_tile(a: torch.Tensor) -> Tile:
    return FEW_TILE._replace(m=max(16, triton.next_power_of_2(len(a))))


def _multiply_sum(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, group_name: str | None) -> None:
    (rows, depth), columns, tile = a.shape, b.shape[1], _few_tile(a)
    tiles, ranks = triton.cdiv(columns, tile.n), Group(0, group_name).ranks
    group = Group(ranks * tiles * rows * tile.n * a.element_size(), group_name)
    launch(
        multiply_sum_kernel,
        # Blocks wait for each other: one on each multiprocessor, and each has signals of its own.
        (min(tiles, multiprocessors(a.device), PAD_SIGNALS // ranks),),
        out,
        a,
        b,
        *group.tables,
        rows,
        columns,
        depth,
        a.stride(),
        b.stride(),
        **group.meta,
        **_meta(a, tile, depth),
    )


def _push_product(a: torch.Tensor, b: torch.Tensor, part: tuple[int, int], group: Group) -> None:
    _launch_push(a, b, part, _tile_of(part[0], a), group.tables[0], rank=group.rank, ranks=group.ranks)


def _launch_push(
    a: torch.Tensor, b: torch.Tensor, part: tuple[int, int], tile: Tile, buffers: int, *, rank: int, ranks: int
) -> None:
    (rows, depth), columns = a.shape, b.shape[1]
    tiles = triton.cdiv(part[0], tile.m) * triton.cdiv(part[1], tile.n)
    if tiles:
        launch(
            multiply_push_kernel,
            (tiles, ranks),
            a,
            b,
            buffers,
            rows,
            columns,
            depth,
            *part,
            a.stride(),
            b.stride(),
            RANK=rank,
            RANKS=ranks,
            **_meta(a, tile, depth),
        )


def _add_slots(out: torch.Tensor, part: int, group: Group, *, mean: bool, gathers: bool) -> None:
    step = step_of(out) // 2
    blocks, share = blocks_and_share(part, step, group.ranks)
    launch(
        add_slots_kernel,
        (blocks,),
        out,
        *group.tables,
        part,
        out.numel(),
        share,
        **group.meta,
        GATHERS=gathers,
        MEAN=mean,
        STEP=step,
        num_warps=WARPS,
    )


def _require_factors(a: torch.Tensor, b: torch.Tensor) -> None:
    require_device(a, b)
    if a.dtype not in FLOATS or a.dtype == torch.float64 or a.dtype != b.dtype or a.ndim != 2 or b.ndim != 2:
        raise NotImplementedError(f"products of {a.dtype} and {b.dtype} of {a.ndim} dimensions are not served")


def _tile_of(rows: int, a: torch.Tensor) -> Tile:
    tile = TILES[a.element_size()]
    return tile._replace(m=max(16, min(tile.m, triton.next_power_of_2(rows))))


def _meta(a: torch.Tensor, tile: Tile, depth: int) -> dict[str, Any]:
    precision = "ieee" if INTERPRETED or a.dtype != torch.float32 else "tf32x3"
    return {
        "MULTIPLY": multiply_type(a.dtype),
        "PRECISION": precision,
        "EVEN_K": depth % tile.k == 0 and depth > 0,
        "ROWS": tile.m,
        "COLUMNS": tile.n,
        "DEPTH": tile.k,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
