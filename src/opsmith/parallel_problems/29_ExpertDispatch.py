"""Tokens sent to the ranks of their experts, by expert, under a routing that is not balanced.

After Megatron-LM, ``megatron/core/transformer/moe/token_dispatcher.py``: ``MoEAlltoAllTokenDispatcher.token_dispatch``.
"""

import torch
import torch.distributed as dist
from torch import nn

TOKENS, WIDTH, EXPERTS, CHOICES, SPREAD = 4096, 4096, 8, 4, 3
SMALL = {"TOKENS": 9, "WIDTH": 6, "EXPERTS": 2, "CHOICES": 2, "SPREAD": 1}
CASES = {"none": {"TOKENS": 0}, "single": {"TOKENS": 1, "CHOICES": 1}, "to-one": {"SPREAD": 0, "CHOICES": 1}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, experts, of_a_rank):
        got, names, _, _, _ = dispatched(x, experts, of_a_rank)
        order = names.argsort(stable=True)
        return got[order], torch.bincount(names, minlength=of_a_rank)


def dispatched(x, experts, of_a_rank):
    """Send tokens to the ranks of their experts: rows, their experts there, what was sent and received, the order."""
    world = dist.get_world_size()
    order = experts.flatten().argsort(stable=True)
    sent = torch.bincount(experts.flatten() // of_a_rank, minlength=world)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    rows = x[order // experts.shape[1]].contiguous()
    names = experts.flatten()[order].contiguous()
    got = rows.new_empty((int(received.sum()), x.shape[1]))
    got_names = names.new_empty(len(got))
    dist.all_to_all_single(got, rows, received.tolist(), sent.tolist())
    dist.all_to_all_single(got_names, names, received.tolist(), sent.tolist())
    return got, got_names - dist.get_rank() * of_a_rank, sent.tolist(), received.tolist(), order


def routed(rank, world_size):
    """Experts of each token: popular ones, tokens that go to one rank alone, and experts that nobody asks."""
    experts = EXPERTS * world_size
    first = torch.tensor([(token * token + 3 * rank) % experts for token in range(TOKENS)], dtype=torch.int64)
    steps = torch.arange(CHOICES) * SPREAD
    return (first[:, None] // 2 + steps) % experts


def get_inputs(rank, world_size):
    return [torch.randn(TOKENS, WIDTH), routed(rank, world_size), EXPERTS]


def get_init_inputs():
    return []
