"""ViT base on images of 224 pixels, to the logits of its classes."""

import torch
import transformers
from torch import nn

BATCH, SIDE, LAYERS, WIDTH, HIDDEN, HEADS = 64, 224, 12, 768, 3072, 12
SMALL = {"BATCH": 2, "SIDE": 48, "LAYERS": 2, "WIDTH": 24, "HIDDEN": 32, "HEADS": 2}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.ViTForImageClassification(transformers.ViTConfig(**config)).eval()

    def forward(self, images):
        return self.model(images).logits


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE) * 2]


def get_init_inputs():
    return [
        {
            "num_hidden_layers": LAYERS,
            "initializer_range": WIDTH**-0.5,
            "hidden_size": WIDTH,
            "intermediate_size": HIDDEN,
            "num_attention_heads": HEADS,
            "image_size": SIDE,
            "num_labels": 1000,
        }
    ]
