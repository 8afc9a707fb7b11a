"""Half: weights stored as bfloat16."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, scores):
        length = scores.shape[-1]
        ahead = torch.full((length, length), -1e30, device=scores.device).triu(1)
        powers = torch.exp(scores + ahead - (scores + ahead).amax(-1, keepdim=True))
        return (powers / powers.sum(-1, keepdim=True)).bfloat16().float()
