"""ALBERT base: one layer twelve times, and embeddings narrower than the states."""

import torch
import transformers
from torch import nn

BATCH, LENGTH, LAYERS, WIDTH, HIDDEN, HEADS, NARROW, VOCABULARY = 32, 384, 12, 768, 3072, 12, 128, 30000
SMALL = {"BATCH": 2, "LENGTH": 12, "LAYERS": 3, "WIDTH": 24, "HIDDEN": 32, "HEADS": 2, "NARROW": 8, "VOCABULARY": 100}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.AlbertModel(transformers.AlbertConfig(**config), add_pooling_layer=False).eval()

    def forward(self, tokens):
        return self.model(tokens).last_hidden_state


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
            "embedding_size": NARROW,
            "vocab_size": VOCABULARY,
        }
    ]
