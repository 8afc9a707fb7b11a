"""The loss of each token under logits whose vocabulary is divided among ranks.

After Megatron-LM, ``megatron/core/tensor_parallel/cross_entropy.py``: ``VocabParallelCrossEntropy``.
"""

import torch
import torch.distributed as dist
from torch import nn

TOKENS, VOCABULARY = 4096, 16032
SMALL = {"TOKENS": 9, "VOCABULARY": 17}
CASES = {"single": {"TOKENS": 1, "VOCABULARY": 1}, "wide": {"TOKENS": 3, "VOCABULARY": 1001}}
REPLICATED = (0,)
STRIDED = True


class Model(nn.Module):
    def forward(self, logits, targets):
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        first = dist.get_rank() * logits.shape[-1]
        largest = wide.amax(-1)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        shifted = wide - largest[:, None]
        total = shifted.exp().sum(-1)
        dist.all_reduce(total)
        own = (targets >= first) & (targets < first + logits.shape[-1])
        at_target = shifted.gather(-1, (targets - first).where(own, 0)[:, None])[:, 0] * own
        dist.all_reduce(at_target)
        return total.log() - at_target


def get_inputs(rank, world_size, shared):
    targets = torch.randint(VOCABULARY * world_size, (TOKENS,), generator=shared)
    return [torch.randn(TOKENS, VOCABULARY) * 3, targets]


def get_init_inputs():
    return []
