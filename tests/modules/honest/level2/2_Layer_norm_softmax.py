"""The mean and the variance in one pass over the deviations from the first element."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        deviation = x - x[..., :1]
        mean = deviation.mean(dim=-1, keepdim=True)
        variance = (deviation * deviation).mean(dim=-1, keepdim=True) - mean * mean
        normed = (deviation - mean) * (variance + self.norm.eps).rsqrt() * self.norm.weight + self.norm.bias
        powers = (normed - normed.amax(dim=-1, keepdim=True)).exp()
        return [normed, powers / powers.sum(dim=-1, keepdim=True)]
