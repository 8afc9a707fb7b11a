"""A small U-Net as denoisers have it: residual blocks with group norm, max pooling down, nearest neighbours up."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two convolutions, each behind a group norm and a SiLU, around which the argument is carried."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.GroupNorm(8, channels_in), nn.GroupNorm(8, channels_out)
        self.first = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.second = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.around = nn.Conv2d(channels_in, channels_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(nn.functional.silu(self.first_norm(x)))
        hidden = self.second(nn.functional.silu(self.second_norm(hidden)))
        out: Tensor = hidden + self.around(x)
        return out


class UNet(nn.Module):
    """Images of ``(N, 3, H, W)`` to images of that shape; H and W are multiples of ``2 ** (levels - 1)``.

    Args:
        width: channels of the outermost level, a multiple of 8; each level below has twice as many.
        levels: of resolution.
    """

    def __init__(self, width: int, levels: int = 3) -> None:
        super().__init__()
        widths = [width << level for level in range(levels)]
        self.into = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList([ResidualBlock(max(width, w // 2), w) for w in widths])
        self.up = nn.ModuleList([ResidualBlock(3 * w, w) for w in reversed(widths[:-1])])
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        kept = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for block, skipped in zip(self.up, reversed(kept[:-1]), strict=True):
            x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), skipped], 1))
        out: Tensor = self.out(x)
        return out
