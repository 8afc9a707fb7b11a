"""ConvNeXt v2 tiny, whose blocks norm the energy of their channels."""

import torch
import transformers
from torch import nn

BATCH, SIDE = 64, 224
DEPTHS, WIDTHS = [3, 3, 9, 3], [96, 192, 384, 768]
SMALL = {"BATCH": 2, "SIDE": 64, "DEPTHS": [1, 1, 2, 1], "WIDTHS": [16, 32, 48, 64]}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.ConvNextV2ForImageClassification(transformers.ConvNextV2Config(**config)).eval()

    def forward(self, images):
        return self.model(images).logits


def get_inputs():
    return [torch.randn(BATCH, 3, SIDE, SIDE) * 2]


def get_init_inputs():
    return [{"depths": DEPTHS, "hidden_sizes": WIDTHS, "num_labels": 1000}]
