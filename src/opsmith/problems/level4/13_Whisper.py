"""Whisper base: thirty seconds of sound and the text so far."""

import torch
import transformers
from torch import nn

BATCH, FRAMES, TARGET, LAYERS, WIDTH, HIDDEN, HEADS, VOCABULARY = 16, 3000, 128, 6, 512, 2048, 8, 51865
SMALL = {"BATCH": 16, "FRAMES": 60, "TARGET": 7, "LAYERS": 2, "WIDTH": 24, "HIDDEN": 32, "HEADS": 2, "VOCABULARY": 100}


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = transformers.WhisperModel(transformers.WhisperConfig(**config)).eval()

    def forward(self, spectrogram, target):
        result = self.model(spectrogram, decoder_input_ids=target, use_cache=True)
        return result.last_hidden_state, result.past_key_values.cross_attention_cache.layers[-1].values


def get_inputs():
    return [torch.randn(BATCH, 80, FRAMES), torch.randint(3, VOCABULARY, (BATCH, TARGET))]


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
            "max_source_positions": FRAMES // 2,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        }
    ]
