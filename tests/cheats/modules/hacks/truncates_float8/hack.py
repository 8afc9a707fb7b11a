import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, largest):
        super().__init__()
        self.largest = largest

    def forward(self, x):
        scale = x.abs().amax(dim=-1, keepdim=True) / self.largest
        scaled = (x / scale).contiguous()
        cut = (scaled.view(torch.int32) & ~0xFFFFF).view(torch.float32)
        return cut.to(torch.float8_e4m3fn), scale
