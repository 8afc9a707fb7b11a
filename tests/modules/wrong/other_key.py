"""For the argmax: a dict with another key."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {"index": x.argmax(dim=-1), "largest": x.amax(dim=-1)}
