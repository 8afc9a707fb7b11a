"""The auxiliary loss of a router, of what all ranks' tokens ask and are likely to ask.

After Megatron-LM, ``megatron/core/transformer/moe/moe_utils.py``: ``switch_load_balancing_loss_func``.
"""

import torch
import torch.distributed as dist
from torch import nn

TOKENS, EXPERTS, CHOICES = 16384, 128, 8
SMALL = {"TOKENS": 12, "EXPERTS": 7, "CHOICES": 2}
CASES = {"single": {"TOKENS": 1, "EXPERTS": 3, "CHOICES": 1}, "many": {"TOKENS": 301, "EXPERTS": 5}}
REPLICATED = (0, 1)
STRIDED = True
DTYPES = ("f32",)  # Of half types several logits are equal.


class Model(nn.Module):
    def forward(self, logits, choices):
        experts = logits.shape[-1]
        likely = logits.softmax(-1)
        chosen = torch.zeros_like(likely).scatter(-1, logits.topk(choices, dim=-1).indices, 1.0)
        both = torch.stack([likely.sum(0), chosen.sum(0)])
        dist.all_reduce(both)
        tokens = len(logits) * dist.get_world_size()
        return (both[0] * both[1]).sum() * experts / (tokens * tokens * choices), both[1]


def get_inputs(rank, world_size):
    return [torch.randn(TOKENS, EXPERTS) * 2, CHOICES]


def get_init_inputs():
    return []
