"""``fused_matmul_reduce_scatter`` as a ring that carries sums while the next product is computed.

A sum for each rank travels round the ring. In every step a rank multiplies the rows that the arriving sum is for while
that sum is on its way, adds both and sends the result on. After ``n - 1`` steps each rank holds its own part, and a
step has taken as long as the longer of the two, a product or a message.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group


def fused_matmul_reduce_scatter__default_kernel_impl(
    A: torch.Tensor,  # noqa: N803
    B: torch.Tensor,  # noqa: N803
    reduce_op: str,
    scatter_dim: int,
    group_name: str,
) -> torch.Tensor:
    """A rank's part along ``scatter_dim`` of the sum or mean of all ranks' ``A @ B``; A is (M, K), B is (K, N)."""
    if reduce_op not in ("sum", "avg") or A.dim() != 2:
        raise NotImplementedError(f"reduction {reduce_op} of {A.dim()} dimensions")
    group = _resolve_process_group(group_name)
    ranks, rank = group.size(), group.rank()
    rows, columns = (A.chunk(ranks), [B] * ranks) if scatter_dim == 0 else ([A] * ranks, B.chunk(ranks, 1))
    total = _product(rows[(rank - 1) % ranks], columns[(rank - 1) % ranks])
    for step in range(1, ranks):
        arriving = torch.empty_like(total)
        messages = [
            dist.P2POp(dist.irecv, arriving, group=group, group_peer=(rank - 1) % ranks),
            dist.P2POp(dist.isend, total, group=group, group_peer=(rank + 1) % ranks),
        ]
        works = dist.batch_isend_irecv(messages)
        part = (rank - 1 - step) % ranks
        product = _product(rows[part], columns[part])
        for work in works:
            work.wait()
        total = product.add_(arriving)
    return (total / ranks if reduce_op == "avg" else total).to(A.dtype)


def _product(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """In float32, in which the sums travel, too."""
    return rows.float() @ columns.float()
