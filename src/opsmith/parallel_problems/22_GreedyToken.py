"""The most likely token where each rank has the logits of a part of the vocabulary.

After TensorRT-LLM, ``tensorrt_llm/_torch/speculative/mtp.py``: ``get_local_max_and_combined``, for drafts.
"""

import torch
import torch.distributed as dist
from torch import nn

TOKENS, VOCABULARY = 256, 16032
SMALL = {"TOKENS": 7, "VOCABULARY": 19}
CASES = {"single": {"TOKENS": 1, "VOCABULARY": 1}, "wide": {"TOKENS": 2, "VOCABULARY": 1001}}
REPLICATED = (0, 1)
STRIDED = True
DTYPES = ("f32",)  # Of half types several are equal.


class Model(nn.Module):
    def forward(self, logits):
        world = dist.get_world_size()
        value, place = logits.max(-1)
        place = place + dist.get_rank() * logits.shape[-1]
        values, places = ([torch.empty_like(own) for _ in range(world)] for own in (value, place))
        dist.all_gather(values, value)
        dist.all_gather(places, place)
        best, rank = torch.stack(values).max(0)
        return torch.stack(places).gather(0, rank[None])[0], best


def get_inputs(rank, world_size):
    return [torch.randn(TOKENS, VOCABULARY)]


def get_init_inputs():
    return []
