"""Attention of new tokens to a cache that is divided among ranks, parts joined by their sums.

After vLLM, ``vllm/v1/attention/ops/common.py``: ``cp_lse_ag_out_rs``, decode context parallelism.
"""

import torch
import torch.distributed as dist
from torch import nn

BATCH, HEADS, WIDTH, CACHED = 64, 16, 128, (4096, 2048, 8192, 1024)
SMALL = {"BATCH": 3, "HEADS": 2, "WIDTH": 8, "CACHED": (5, 3, 7, 2)}
CASES = {"one-empty": {"CACHED": (4, 0, 6)}, "only-one": {"CACHED": (0, 5, 0, 0)}, "single": {"CACHED": (1,)}}
STRIDED = True


class Model(nn.Module):
    def forward(self, q, k, v):
        wide = torch.promote_types(q.dtype, torch.float32)
        scores = torch.einsum("bhd,bthd->bht", q.to(wide), k.to(wide)) * q.shape[-1] ** -0.5
        total = scores.logsumexp(-1) if k.shape[1] else scores.new_full(scores.shape[:2], float("-inf"))
        largest = total.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        weights = (scores - largest[..., None]).exp()
        joined = torch.cat([torch.einsum("bht,bthd->bhd", weights, v.to(wide)), weights.sum(-1)[..., None]], -1)
        dist.all_reduce(joined)
        return (joined[..., :-1] / joined[..., -1:]).to(q.dtype), joined[..., -1].log() + largest


def get_inputs(rank, world_size, shared):
    tokens = CACHED[rank % len(CACHED)]
    if world_size == 1:
        tokens = max(CACHED)  # Somebody has to have a cache.
    elif rank == 1 and not any(CACHED[:world_size]):
        tokens = max(CACHED)
    q = torch.randn(BATCH, HEADS, WIDTH, generator=shared)
    return [q, torch.randn(BATCH, tokens, HEADS, WIDTH), torch.randn(BATCH, tokens, HEADS, WIDTH)]


def get_init_inputs():
    return []
