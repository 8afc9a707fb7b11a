"""An online softmax in Triton."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax(x_ptr, y_ptr, ROW: tl.constexpr, BLOCK: tl.constexpr):
    base = tl.program_id(0) * ROW
    lane = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, ROW, BLOCK):
        x = tl.load(x_ptr + base + start + lane, mask=start + lane < ROW, other=float("-inf"))
        new = tl.maximum(top, x)
        total = tl.where(new == float("-inf"), 0.0, total * tl.exp(top - new) + tl.exp(x - new))
        top = new
    highest = tl.max(top, axis=0)
    total_of_row = tl.sum(tl.where(top == float("-inf"), 0.0, total * tl.exp(top - highest)), axis=0)
    for start in range(0, ROW, BLOCK):
        inside = start + lane < ROW
        x = tl.load(x_ptr + base + start + lane, mask=inside)
        tl.store(y_ptr + base + start + lane, tl.exp(x - highest) / total_of_row, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            softmax[(x.numel() // x.shape[-1],)](x, y, ROW=x.shape[-1], BLOCK=128)
        return y
