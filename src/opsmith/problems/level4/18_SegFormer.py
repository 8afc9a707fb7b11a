"""SegFormer B1 on images of 512 pixels, to the map of its last stage."""

import torch
import transformers
from torch import nn

BATCH, SIDE = 8, 512
WIDTHS, DEPTHS = [64, 128, 320, 512], [2, 2, 2, 2]
SMALL = {"BATCH": 2, "SIDE": 64, "WIDTHS": [16, 32, 40, 64], "DEPTHS": [1, 1, 1, 1]}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.SegformerModel(transformers.SegformerConfig(**config)).eval()

    def forward(self, images):
        return self.model(images).last_hidden_state


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE) * 2]


def get_init_inputs():
    return [{"hidden_sizes": WIDTHS, "depths": DEPTHS}]
