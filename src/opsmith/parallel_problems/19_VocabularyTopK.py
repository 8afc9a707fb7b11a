"""The largest logits of each token and their places in a vocabulary that is divided among ranks.

After vLLM, ``vllm/v1/sample/sampler.py``: ``gather_logprobs``, of logits that tensor parallelism divides.
"""

import torch
import torch.distributed as dist
from torch import nn

TOKENS, VOCABULARY, COUNT = 512, 16032, 20
SMALL = {"TOKENS": 6, "VOCABULARY": 23, "COUNT": 5}
CASES = {"few": {"TOKENS": 1, "VOCABULARY": 5}, "wide": {"TOKENS": 2, "VOCABULARY": 1001}}
REPLICATED = (0, 1)
STRIDED = True
DTYPES = ("f32",)  # Of half types several are equal.


class Model(nn.Module):
    def forward(self, logits, count):
        world = dist.get_world_size()
        values, places = logits.topk(count, dim=-1)
        places = places + dist.get_rank() * logits.shape[-1]
        of_ranks = [torch.empty_like(values) for _ in range(world)], [torch.empty_like(places) for _ in range(world)]
        dist.all_gather(of_ranks[0], values)
        dist.all_gather(of_ranks[1], places)
        values, order = torch.cat(of_ranks[0], -1).topk(count, dim=-1)
        return values, torch.cat(of_ranks[1], -1).gather(-1, order)


def get_inputs(rank, world_size):
    return [torch.randn(TOKENS, VOCABULARY) * 3, COUNT]


def get_init_inputs():
    return []
