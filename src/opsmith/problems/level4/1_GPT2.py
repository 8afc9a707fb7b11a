"""GPT-2 small, from texts to the logits of the next token."""

import torch
import transformers
from torch import nn

BATCH, LENGTH, LAYERS, WIDTH, HEADS, VOCABULARY = 16, 1024, 12, 768, 12, 50257
SMALL = {"BATCH": 2, "LENGTH": 12, "LAYERS": 2, "WIDTH": 32, "HEADS": 2, "VOCABULARY": 120}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**config)).eval()

    def forward(self, tokens):
        result = self.model(tokens, use_cache=True, logits_to_keep=1)
        return result.logits, result.past_key_values.layers[0].keys, result.past_key_values.layers[-1].values


def get_inputs():
    return [torch.randint(VOCABULARY, (BATCH, LENGTH))]


def get_init_inputs():
    return [
        {
            "n_layer": LAYERS,
            "n_embd": WIDTH,
            "n_head": HEADS,
            "n_positions": LENGTH,
            "vocab_size": VOCABULARY,
            "initializer_range": WIDTH**-0.5,
        }
    ]
