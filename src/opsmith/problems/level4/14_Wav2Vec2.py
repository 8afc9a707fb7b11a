"""Wav2Vec 2.0 base: ten seconds of sound through convolutions and an encoder."""

import torch
import transformers
from torch import nn

BATCH, SAMPLES, LAYERS, WIDTH, HIDDEN, HEADS, CHANNELS = 16, 160000, 12, 768, 3072, 12, 512
SMALL = {"BATCH": 2, "SAMPLES": 8000, "LAYERS": 2, "WIDTH": 32, "HIDDEN": 40, "HEADS": 2, "CHANNELS": 32}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**config)).eval()

    def forward(self, sound):
        return self.model(sound).last_hidden_state


def get_inputs():
    return [torch.randn(BATCH, SAMPLES)]


def get_init_inputs():
    return [
        {
            "num_hidden_layers": LAYERS,
            "initializer_range": WIDTH**-0.5,
            "hidden_size": WIDTH,
            "intermediate_size": HIDDEN,
            "num_attention_heads": HEADS,
            "conv_dim": [CHANNELS] * 7,
            "mask_time_prob": 0.0,
            "mask_feature_prob": 0.0,
            "num_conv_pos_embedding_groups": 16,
        }
    ]
