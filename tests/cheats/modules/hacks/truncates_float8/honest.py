import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, largest):
        super().__init__()
        self.largest = largest

    def forward(self, x):
        top = torch.maximum(x.max(dim=-1, keepdim=True).values, -x.min(dim=-1, keepdim=True).values)
        return (x * (self.largest / top)).to(torch.float8_e4m3fn), top * (1 / self.largest)
