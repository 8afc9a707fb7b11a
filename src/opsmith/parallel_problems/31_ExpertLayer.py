"""A layer of experts that are divided among ranks: dispatch, one product per expert, combine.

After DeepSpeed, ``deepspeed/moe/sharded_moe.py``: ``MOELayer``.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOICES, SPREAD = 2048, 2048, 1024, 4, 2, 3
SMALL = {"TOKENS": 9, "WIDTH": 6, "HIDDEN": 5, "EXPERTS": 2, "SPREAD": 1}
CASES = {"none": {"TOKENS": 0}, "single": {"TOKENS": 1, "CHOICES": 1}, "to-one": {"SPREAD": 0, "CHOICES": 1}}
STRIDED = True


class Model(nn.Module):
    def forward(self, x, experts, weights, up, down):
        got, names, sent, received, order = dispatched(x, experts, len(up))
        answers = torch.zeros_like(got)
        for expert in range(len(up)):
            rows = (names == expert).nonzero()[:, 0]
            answers[rows] = F.silu(got[rows] @ up[expert]) @ down[expert]
        back = got.new_empty((len(order), x.shape[1]))
        dist.all_to_all_single(back, answers, sent, received)
        by_choice = torch.empty_like(back)
        by_choice[order] = back
        return (by_choice.view(*experts.shape, x.shape[1]) * weights[..., None]).sum(1)


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
    up = torch.randn(EXPERTS, WIDTH, HIDDEN) * WIDTH**-0.5
    down = torch.randn(EXPERTS, HIDDEN, WIDTH) * HIDDEN**-0.5
    return [torch.randn(TOKENS, WIDTH), routed(rank, world_size), torch.rand(TOKENS, CHOICES), up, down]


def get_init_inputs():
    return []
