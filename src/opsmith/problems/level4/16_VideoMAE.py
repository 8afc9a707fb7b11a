"""VideoMAE base: sixteen frames in tubes of two, to the logits of their classes."""

import torch
import transformers
from torch import nn

BATCH, FRAMES, SIDE, LAYERS, WIDTH, HIDDEN, HEADS = 4, 16, 224, 12, 768, 3072, 12
SMALL = {"BATCH": 2, "FRAMES": 4, "SIDE": 48, "LAYERS": 2, "WIDTH": 24, "HIDDEN": 32, "HEADS": 2}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.VideoMAEForVideoClassification(transformers.VideoMAEConfig(**config)).eval()

    def forward(self, frames):
        return self.model(frames).logits


def get_inputs():
    return [torch.randn(BATCH, FRAMES, 3, SIDE, SIDE) * 2]


def get_init_inputs():
    return [
        {
            "num_hidden_layers": LAYERS,
            "initializer_range": WIDTH**-0.5,
            "hidden_size": WIDTH,
            "intermediate_size": HIDDEN,
            "num_attention_heads": HEADS,
            "num_frames": FRAMES,
            "image_size": SIDE,
            "num_labels": 400,
        }
    ]
