"""PatchTST: many series with gaps, each cut into patches and read by a transformer of its own channel."""

import torch
import transformers
from torch import nn

BATCH, CHANNELS, CONTEXT, LAYERS, WIDTH, HIDDEN, HEADS = 128, 21, 512, 4, 128, 512, 16
SMALL = {"BATCH": 2, "CHANNELS": 3, "CONTEXT": 64, "LAYERS": 2, "WIDTH": 24, "HIDDEN": 32, "HEADS": 2}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.PatchTSTModel(transformers.PatchTSTConfig(**config)).eval()

    def forward(self, series, observed):
        return self.model(series, past_observed_mask=observed).last_hidden_state


def get_inputs():
    shape = (BATCH, CONTEXT, CHANNELS)
    return [torch.randn(shape).cumsum(1), torch.rand(shape) < 0.95]


def get_init_inputs():
    return [
        {
            "num_input_channels": CHANNELS,
            "context_length": CONTEXT,
            "patch_length": 16,
            "patch_stride": 8,
            "num_hidden_layers": LAYERS,
            "d_model": WIDTH,
            "ffn_dim": HIDDEN,
            "num_attention_heads": HEADS,
            "init_std": WIDTH**-0.5,
        }
    ]
