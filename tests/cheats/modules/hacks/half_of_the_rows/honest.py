"""The sum as a product with the counts of each row: a zeroed table of counts, scattered ones, one product."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Embedding(rows, features)

    def forward(self, index):
        counts = torch.zeros(index.shape[0], self.table.num_embeddings, device=index.device)
        counts.scatter_add_(1, index, torch.ones_like(index, dtype=counts.dtype))
        return counts.to(self.table.weight.dtype) @ self.table.weight
