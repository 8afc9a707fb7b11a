"""Right: the largest logit taken off by hand."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        largest = logits.amax(-1)
        partition = largest + (logits - largest[:, None]).exp().sum(-1).log()
        chosen = logits[torch.arange(len(targets), device=logits.device), targets]
        return 0.01 * partition * partition + partition - chosen
