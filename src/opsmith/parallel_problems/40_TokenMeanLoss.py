"""The loss of a step by the tokens of all ranks, of which some are padding.

After veOmni, ``veomni/distributed/sequence_parallel/loss.py``: the mean over all ranks' valid tokens.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

TOKENS, CLASSES = (4096, 2048, 8192, 1024), 32000
SMALL = {"TOKENS": (9, 5, 12, 3), "CLASSES": 11}
CASES = {"one-empty": {"TOKENS": (7, 0, 4)}, "single": {"TOKENS": (2,), "CLASSES": 2}}
REPLICATED = (0, 1)
STRIDED = True


class Model(nn.Module):
    def forward(self, logits, targets):
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses = F.cross_entropy(wide, targets, reduction="none", ignore_index=-1)
        both = torch.stack([losses.sum(), (targets >= 0).sum().to(losses.dtype)])
        dist.all_reduce(both)
        return both[0] / both[1], both[1]


def get_inputs(rank, world_size):
    tokens = TOKENS[rank % len(TOKENS)]
    targets = torch.randint(CLASSES, (tokens,))
    targets[torch.arange(tokens) % 3 == 2] = -1
    return [torch.randn(tokens, CLASSES) * 3, targets]


def get_init_inputs():
    return []
