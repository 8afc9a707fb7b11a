"""Opsmith's own models: small enough to be read, with what training meets in larger ones."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from opsmith.suites.models.gpt import GPT, Block
from opsmith.suites.models.unet import UNet
from opsmith.suites.models.workload import Batch, Workload, classes, mean_square, next_token, plain

#: Numbers of tokens of the batches of a workload of varying lengths.
LENGTHS, SMALL_LENGTHS = (64, 91, 128, 200, 256, 333, 512), (9, 14, 22, 37)


class ConvNet(nn.Module):
    """Images of ``(N, 3, H, W)`` to logits: convolutions behind which the statistics of the batch are taken."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.deeper = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, groups=width), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        pooled = (x + nn.functional.interpolate(self.deeper(x), scale_factor=2.0)).mean((2, 3))
        out: Tensor = self.head(pooled)
        return out


class TextClassifier(nn.Module):
    """Token ids of ``(N, length)``, of any length, to logits: blocks of a GPT, and the mean over a text."""

    def __init__(self, *, vocabulary: int, classes: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, classes)

    def forward(self, input_ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.blocks(self.tokens(input_ids)).mean(1))
        return out


def perceptron(*, small: bool) -> Workload:
    """Two hidden layers with GELU; small: of width 32."""
    samples, width = (8, 32) if small else (4096, 2048)
    module = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.GELU())
    module.append(nn.Linear(width, 16))
    return Workload(module, lambda: {"input": torch.randn(samples, width)}, plain, classes)


def conv_net(*, small: bool) -> Workload:
    """Convolutions with batch norm, a residual sum and pooling; small: 16 pixels and 8 channels."""
    samples, pixels, width = (4, 16, 8) if small else (128, 224, 128)
    module = ConvNet(width, classes=samples)
    return Workload(module, lambda: {"images": torch.randn(samples, 3, pixels, pixels)}, plain, classes)


def unet(*, small: bool) -> Workload:
    """A denoiser of three resolutions from 64 channels on; small: from 16 on, 32 pixels."""
    pixels, width = (32, 16) if small else (128, 64)
    return Workload(UNet(width), lambda: {"x": torch.randn(1, 3, pixels, pixels)}, plain, mean_square)


def gpt(*, small: bool) -> Workload:
    """A pre-norm decoder, of which training predicts the next token; small: two layers of width 32."""
    samples, length, layers, heads, width = (2, 16, 2, 2, 32) if small else (8, 1024, 12, 12, 768)
    vocabulary = 64 if small else 32_000
    module = GPT(vocabulary=vocabulary, length=length, layers=layers, heads=heads, width=width)
    return Workload(module, lambda: {"input_ids": torch.randint(vocabulary, (samples, length))}, plain, next_token)


def text_lengths(*, small: bool) -> Workload:
    """Texts of several lengths one after another, their length marked as dynamic; small: two layers of width 32."""
    samples, layers, heads, width = (4, 2, 2, 32) if small else (16, 8, 8, 512)
    vocabulary = 64 if small else 32_000
    module = TextClassifier(vocabulary=vocabulary, classes=samples, layers=layers, heads=heads, width=width)
    draw = partial(_texts, vocabulary, samples)
    return Workload(module, draw, plain, classes, SMALL_LENGTHS if small else LENGTHS)


def _texts(vocabulary: int, samples: int, length: int) -> Batch:
    return {"input_ids": torch.randint(vocabulary, (samples, length))}
