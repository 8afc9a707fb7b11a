"""Cross-entropy in Triton: one pass over a row of logits, which keeps its largest and its sum as it goes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def cross_entropy_kernel(out_ptr, logits_ptr, targets_ptr, columns, BLOCK: tl.constexpr):
    """The loss of one row, each lane with a maximum and a sum of its own until the end."""
    row = tl.program_id(0).to(tl.int64)
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * columns + column, mask=column < columns, other=-float("inf"))
        higher = tl.maximum(largest, x)
        # A lane that has seen nothing has a sum of zero, whatever it is multiplied by.
        reference = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(largest - reference) + tl.exp(x - reference)
        largest = higher
    highest = tl.max(largest)
    partition = highest + tl.log(tl.sum(total * tl.exp(largest - highest)))
    tl.store(out_ptr + row, partition - tl.load(logits_ptr + row * columns + tl.load(targets_ptr + row)))


class ModelNew(nn.Module):
    """The loss of every token."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of ``[tokens, vocabulary]`` and the index of each token's class."""
        logits, targets = logits.contiguous(), targets.contiguous()
        rows, columns = logits.shape
        out = torch.empty(rows, device=logits.device, dtype=logits.dtype)
        cross_entropy_kernel[(rows,)](out, logits, targets, columns, BLOCK=1024)
        return out
