"""BERT base over texts of two segments: the states of all tokens and the pooled one."""

import torch
import transformers
from torch import nn

BATCH, LENGTH, LAYERS, WIDTH, HIDDEN, HEADS, VOCABULARY = 32, 384, 12, 768, 3072, 12, 30522
SMALL = {"BATCH": 2, "LENGTH": 12, "LAYERS": 2, "WIDTH": 24, "HIDDEN": 32, "HEADS": 2, "VOCABULARY": 100}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.BertModel(transformers.BertConfig(**config)).eval()

    def forward(self, tokens, segments):
        result = self.model(tokens, token_type_ids=segments)
        return result.last_hidden_state, result.pooler_output


def get_inputs():
    return [torch.randint(VOCABULARY, (BATCH, LENGTH)), torch.randint(2, (BATCH, LENGTH))]


def get_init_inputs():
    return [
        {
            "num_hidden_layers": LAYERS,
            "initializer_range": WIDTH**-0.5,
            "hidden_size": WIDTH,
            "intermediate_size": HIDDEN,
            "num_attention_heads": HEADS,
            "vocab_size": VOCABULARY,
        }
    ]
