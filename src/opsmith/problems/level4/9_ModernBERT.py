"""ModernBERT base: rotated positions, gated MLPs, and a sliding window in two layers of three."""

import torch
import transformers
from torch import nn

BATCH, LENGTH, LAYERS, WIDTH, HIDDEN, HEADS, WINDOW, VOCABULARY = 16, 1024, 22, 768, 1152, 12, 128, 50368
SMALL = {"BATCH": 8, "LENGTH": 20, "LAYERS": 4, "WIDTH": 24, "HIDDEN": 32, "HEADS": 2, "WINDOW": 8, "VOCABULARY": 100}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.ModernBertModel(transformers.ModernBertConfig(**config)).eval()

    def forward(self, tokens):
        return self.model(tokens).last_hidden_state


def get_inputs():
    return [torch.randint(10, VOCABULARY, (BATCH, LENGTH))]


def get_init_inputs():
    return [
        {
            "num_hidden_layers": LAYERS,
            "initializer_range": WIDTH**-0.5,
            "initializer_cutoff_factor": 3.0,
            "hidden_size": WIDTH,
            "intermediate_size": HIDDEN,
            "num_attention_heads": HEADS,
            "local_attention": WINDOW,
            "vocab_size": VOCABULARY,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
        }
    ]
