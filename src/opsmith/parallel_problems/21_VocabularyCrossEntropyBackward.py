"""The gradient of a rank's logits under the loss of a vocabulary that is divided among ranks.

After Megatron-LM, ``megatron/core/fusions/fused_cross_entropy.py``: ``calculate_gradients``.
"""

import torch
import torch.distributed as dist
from torch import nn

TOKENS, VOCABULARY = 4096, 16032
SMALL = {"TOKENS": 9, "VOCABULARY": 17}
CASES = {"single": {"TOKENS": 1, "VOCABULARY": 1}, "wide": {"TOKENS": 3, "VOCABULARY": 1001}}
STRIDED = True


class Model(nn.Module):
    def forward(self, logits, targets, gradient):
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        largest = wide.amax(-1, keepdim=True)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        exponentials = (wide - largest).exp()
        total = exponentials.sum(-1, keepdim=True)
        dist.all_reduce(total)
        places = torch.arange(logits.shape[-1], device=logits.device) + dist.get_rank() * logits.shape[-1]
        hot = (places == targets[:, None]).to(wide.dtype)
        return ((exponentials / total - hot) * gradient[:, None]).to(logits.dtype)


def get_inputs(rank, world_size, shared):
    targets = torch.randint(VOCABULARY * world_size, (TOKENS,), generator=shared)
    return [torch.randn(TOKENS, VOCABULARY) * 3, targets, torch.randn(TOKENS, generator=shared)]


def get_init_inputs():
    return []
