"""The embedding of each token, where each rank holds the rows of a part of the vocabulary.

After Megatron-LM, ``megatron/core/tensor_parallel/layers.py``: ``VocabParallelEmbedding``.
"""

import torch
import torch.distributed as dist
from torch import nn

TOKENS, VOCABULARY, WIDTH = 4096, 16032, 4096
SMALL = {"TOKENS": 9, "VOCABULARY": 11, "WIDTH": 6}
CASES = {"single": {"TOKENS": 1, "VOCABULARY": 1, "WIDTH": 1}, "many": {"TOKENS": 101, "WIDTH": 33}}
REPLICATED = (0,)
STRIDED = True


class Model(nn.Module):
    def forward(self, tokens, table):
        own = tokens - dist.get_rank() * len(table)
        is_own = (own >= 0) & (own < len(table))
        rows = table[own.where(is_own, 0)] * is_own[:, None]
        dist.all_reduce(rows)
        return rows


def get_inputs(rank, world_size, shared):
    tokens = torch.randint(VOCABULARY * world_size, (TOKENS,), generator=shared)
    return [tokens, torch.randn(VOCABULARY, WIDTH)]


def get_init_inputs():
    return []
