"""The loss of pairs of images and texts against those of all ranks.

After OpenCLIP, ``src/open_clip/loss.py``: ``ClipLoss`` with ``gather_features`` and ``local_loss``.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

PAIRS, WIDTH = 1024, 1024
SMALL = {"PAIRS": 5, "WIDTH": 8}
SIZES = {"single": {"PAIRS": 1}, "many": {"PAIRS": 33}}
STRIDED = True


class Model(nn.Module):
    def forward(self, images, texts, scale):
        rank, world = dist.get_rank(), dist.get_world_size()
        wide = torch.promote_types(images.dtype, torch.float32)
        images, texts = (F.normalize(each.to(wide), dim=-1).contiguous() for each in (images, texts))
        all_images, all_texts = ([torch.empty_like(each) for _ in range(world)] for each in (images, texts))
        dist.all_gather(all_images, images)
        dist.all_gather(all_texts, texts)
        targets = torch.arange(len(images), device=images.device) + rank * len(images)
        of_images = F.cross_entropy(scale.to(wide) * images @ torch.cat(all_texts).t(), targets)
        of_texts = F.cross_entropy(scale.to(wide) * texts @ torch.cat(all_images).t(), targets)
        return (of_images + of_texts) / 2


def get_inputs(rank, world_size, shared):
    scale = torch.rand((), generator=shared) * 10 + 5
    return [torch.randn(PAIRS, WIDTH), torch.randn(PAIRS, WIDTH), scale]


def get_init_inputs():
    return []
