"""The log-probability of each sampled token under logits whose vocabulary is divided among ranks.

After NeMo-RL, ``nemo_rl/distributed/model_utils.py``: ``DistributedLogprob``, in the loop of GRPO.
"""

import torch
import torch.distributed as dist
from torch import nn

BATCH, TOKENS, VOCABULARY, TEMPERATURE = 8, 512, 16032, 0.7
SMALL = {"BATCH": 2, "TOKENS": 5, "VOCABULARY": 17}
CASES = {"single": {"BATCH": 1, "TOKENS": 1, "VOCABULARY": 1}, "wide": {"VOCABULARY": 1001}}
REPLICATED = (0,)
STRIDED = True


class Model(nn.Module):
    def forward(self, logits, tokens):
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32)) / TEMPERATURE
        first = dist.get_rank() * logits.shape[-1]
        largest = wide.amax(-1, keepdim=True)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        total = (wide - largest).exp().sum(-1, keepdim=True)
        dist.all_reduce(total)
        own = (tokens >= first) & (tokens < first + logits.shape[-1])
        at_token = wide.gather(-1, (tokens - first).where(own, 0)[..., None])[..., 0] * own
        dist.all_reduce(at_token)
        return at_token - (largest + total.log())[..., 0]


def get_inputs(rank, world_size, shared):
    tokens = torch.randint(VOCABULARY * world_size, (BATCH, TOKENS), generator=shared)
    return [torch.randn(BATCH, TOKENS, VOCABULARY) * 3, tokens]


def get_init_inputs():
    return []
