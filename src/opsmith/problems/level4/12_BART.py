"""BART base, which reads a text with gaps and writes it anew."""

import torch
import transformers
from torch import nn

BATCH, LENGTH, TARGET, LAYERS, WIDTH, HIDDEN, HEADS, VOCABULARY = 32, 512, 256, 6, 768, 3072, 12, 50265
SMALL = {"BATCH": 2, "LENGTH": 12, "TARGET": 9, "LAYERS": 2, "WIDTH": 24, "HIDDEN": 32, "HEADS": 2, "VOCABULARY": 100}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.BartModel(transformers.BartConfig(**config)).eval()

    def forward(self, tokens, target):
        result = self.model(tokens, decoder_input_ids=target, use_cache=True)
        return result.last_hidden_state, result.past_key_values.cross_attention_cache.layers[-1].values


def get_inputs():
    return [torch.randint(3, VOCABULARY, (BATCH, LENGTH)), torch.randint(3, VOCABULARY, (BATCH, TARGET))]


def get_init_inputs():
    return [
        {
            "encoder_layers": LAYERS,
            "init_std": WIDTH**-0.5,
            "scale_embedding": True,
            "decoder_layers": LAYERS,
            "d_model": WIDTH,
            "encoder_ffn_dim": HIDDEN,
            "decoder_ffn_dim": HIDDEN,
            "encoder_attention_heads": HEADS,
            "decoder_attention_heads": HEADS,
            "vocab_size": VOCABULARY,
        }
    ]
