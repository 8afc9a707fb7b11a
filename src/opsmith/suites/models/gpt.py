"""A small GPT to train: pre-norm blocks, fused projections, tied output weights, GPT-2's initial weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: Of initial weights.
_DEVIATION = 0.02


class Block(nn.Module):
    """Attention and an MLP, each behind a layer norm and around which the argument is carried."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mix(self.before_attention(x)).unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        out: Tensor = x + self.mlp(self.before_mlp(x))
        return out


class GPT(nn.Module):
    """Token ids of ``(batch, length)`` to logits of ``(batch, length, vocabulary)``."""

    def __init__(self, *, vocabulary: int, length: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.last = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.tokens(input_ids) + self.places(torch.arange(input_ids.shape[1], device=input_ids.device))
        return nn.functional.linear(self.last(self.blocks(x)), self.tokens.weight)
