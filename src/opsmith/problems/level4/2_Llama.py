"""A Llama of 300 million weights with grouped queries, filling its cache."""

import torch
import transformers
from torch import nn

BATCH, LENGTH, LAYERS, WIDTH, HIDDEN, HEADS, GROUPS, VOCABULARY = 8, 1024, 16, 1024, 2816, 16, 4, 32000
SMALL = {"BATCH": 8, "LENGTH": 12, "LAYERS": 2, "WIDTH": 32, "HIDDEN": 48, "HEADS": 4, "GROUPS": 2, "VOCABULARY": 120}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).eval()

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
            "num_attention_heads": HEADS,
            "num_key_value_heads": GROUPS,
            "vocab_size": VOCABULARY,
        }
    ]
