"""Cross entropy of logits with a label that is ignored."""

import torch
from torch import nn

TOKENS, CLASSES = 4096, 32000
SMALL = {"TOKENS": 24, "CLASSES": 300}


class Model(nn.Module):
    def forward(self, logits, targets):
        return nn.functional.cross_entropy(logits, targets, ignore_index=0)


def get_inputs():
    return [torch.randn(TOKENS, CLASSES) * 4, torch.randint(0, CLASSES, (TOKENS,))]
