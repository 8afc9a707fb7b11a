"""Both results out of one sort, in a dict of another order; found by the public layout of runs."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        largest, where = x.sort(dim=-1, descending=True)
        return {"largest": largest[..., 0].clone(), "where": where[..., 0].clone()}
