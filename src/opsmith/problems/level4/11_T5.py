"""T5 base, encoder and decoder, with biases of distances in place of positions."""

import torch
import transformers
from torch import nn

BATCH, LENGTH, TARGET, LAYERS, WIDTH, HIDDEN, HEADS, FARTHEST, VOCABULARY = 32, 384, 192, 12, 768, 3072, 12, 128, 32128
SMALL = {
    "BATCH": 40,
    "LENGTH": 26,
    "TARGET": 24,
    "LAYERS": 2,
    "WIDTH": 24,
    "HIDDEN": 32,
    "HEADS": 2,
    "FARTHEST": 18,
    "VOCABULARY": 100,
}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.T5Model(transformers.T5Config(**config)).eval()

    def forward(self, tokens, target):
        return self.model(tokens, decoder_input_ids=target, use_cache=False).last_hidden_state


def get_inputs():
    return [torch.randint(VOCABULARY, (BATCH, LENGTH)), torch.randint(VOCABULARY, (BATCH, TARGET))]


def get_init_inputs():
    return [
        {
            "num_layers": LAYERS,
            "num_decoder_layers": LAYERS,
            "d_model": WIDTH,
            "d_ff": HIDDEN,
            "num_heads": HEADS,
            "d_kv": WIDTH // HEADS,
            "relative_attention_max_distance": FARTHEST,
            "vocab_size": VOCABULARY,
        }
    ]
