"""A Gemma 3 of the size of its 270M, most of whose layers see a sliding window."""

import torch
import transformers
from torch import nn

BATCH, LENGTH, LAYERS, WIDTH, HIDDEN, INNER, WINDOW, VOCABULARY = 8, 1024, 18, 640, 2048, 256, 512, 65536
SMALL = {"BATCH": 2, "LENGTH": 14, "LAYERS": 6, "WIDTH": 24, "HIDDEN": 40, "INNER": 12, "WINDOW": 6, "VOCABULARY": 120}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**config)).eval()

    def forward(self, tokens):
        result = self.model(tokens, use_cache=True, logits_to_keep=1)
        return result.logits, result.past_key_values.layers[0].keys, result.past_key_values.layers[-1].values


def get_inputs():
    return [torch.randint(VOCABULARY, (BATCH, LENGTH))]


def get_init_inputs():
    return [
        {
            "num_hidden_layers": LAYERS,
            "initializer_range": WIDTH**-0.5,
            "hidden_size": WIDTH,
            "intermediate_size": HIDDEN,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": INNER,
            "sliding_window": WINDOW,
            "vocab_size": VOCABULARY,
        }
    ]
