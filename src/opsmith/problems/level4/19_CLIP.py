"""CLIP with its two towers: embeddings of images and of texts, and the logits of every pair."""

import torch
import transformers
from torch import nn

BATCH, SIDE, LENGTH, LAYERS, WIDTH, HIDDEN, HEADS, VOCABULARY = 128, 224, 77, 12, 768, 3072, 12, 49408
SMALL = {"BATCH": 3, "SIDE": 64, "LENGTH": 9, "LAYERS": 2, "WIDTH": 24, "HIDDEN": 32, "HEADS": 2, "VOCABULARY": 100}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.CLIPModel(transformers.CLIPConfig(**config)).eval()

    def forward(self, tokens, images):
        result = self.model(input_ids=tokens, pixel_values=images)
        return result.logits_per_text, result.image_embeds, result.text_embeds


def get_inputs():
    return [torch.randint(3, VOCABULARY, (BATCH, LENGTH)), torch.randn(BATCH, 3, SIDE, SIDE) * 2]


def get_init_inputs():
    return [
        {
            "text_config": {
                "num_hidden_layers": LAYERS,
                "hidden_size": WIDTH,
                "intermediate_size": HIDDEN,
                "num_attention_heads": HEADS,
                "vocab_size": VOCABULARY,
                "max_position_embeddings": LENGTH,
                "bos_token_id": 0,
                "pad_token_id": 1,
                "eos_token_id": VOCABULARY - 1,
            },
            "vision_config": {
                "num_hidden_layers": LAYERS,
                "hidden_size": WIDTH,
                "intermediate_size": HIDDEN,
                "num_attention_heads": HEADS,
                "image_size": SIDE,
                "patch_size": 16,
            },
        }
    ]
