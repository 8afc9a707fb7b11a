"""Published models with random weights, from the configurations of transformers and timm: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from opsmith.suites.models.workload import Batch, Workload, classes, logits, next_token, plain, same_token
from opsmith.traces.subject import Sizes
from opsmith.traces.vision_models import TimmModel


def resnet50(*, small: bool) -> Workload:
    """He et al. 2015; small: a bottleneck block a stage, and 64 pixels."""
    import transformers

    sizes: dict[str, Any] = {}
    if small:
        sizes = {"depths": [1, 1, 1, 1], "hidden_sizes": [32, 64, 128, 256], "embedding_size": 16}
    module = transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes))
    return Workload(module, partial(_images, 64 if small else 224), logits, classes)


def vit_b(*, small: bool) -> Workload:
    """Dosovitskiy et al. 2020, 16-pixel patches; small: two layers of width 64, 64 pixels."""
    import transformers

    sizes: dict[str, Any] = {"image_size": 64, **_narrow_encoder()} if small else {}
    module = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, **_undropped()))
    return Workload(module, partial(_images, 64 if small else 224), logits, classes)


def bert_base(*, small: bool) -> Workload:
    """Devlin et al. 2018, a batch of two of which one is padded; small: two layers of width 64."""
    import transformers

    sizes: dict[str, Any] = {"vocab_size": 500, **_narrow_encoder()} if small else {}
    module = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, **_undropped()))
    length = 32 if small else 128
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, length // 2 :] = 0

    def draw() -> Batch:
        return {"input_ids": _tokens(module.config.vocab_size, length, batch=2), "attention_mask": mask.clone()}

    return Workload(module, draw, logits, same_token)


def gpt2(*, small: bool) -> Workload:
    """Radford et al. 2019, 124M; small: two layers of width 64."""
    import transformers

    sizes: dict[str, Any] = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 500} if small else {}
    sizes |= {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    return Workload(module, partial(_text, module, 32 if small else 256), logits, next_token)


def llama(*, small: bool) -> Workload:
    """Touvron et al. 2023 with grouped queries, 200M; small: two layers of width 64."""
    import transformers

    sizes: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 176, "vocab_size": 500}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    if not small:
        sizes = {"num_hidden_layers": 12, "hidden_size": 1024, "intermediate_size": 2816, "vocab_size": 32_000}
        sizes |= {"num_attention_heads": 16, "num_key_value_heads": 8}
    module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    return Workload(module, partial(_text, module, 16 if small else 128), logits, next_token)


def whisper_tiny(*, small: bool) -> Workload:
    """Radford et al. 2022, thirty seconds and 32 tokens; small: two layers of width 64, one second."""
    import transformers

    sizes: dict[str, Any] = {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "vocab_size": 51_865}
    sizes |= {"encoder_attention_heads": 6, "decoder_attention_heads": 6}
    sizes |= {"encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}
    if small:
        sizes = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 500, "max_source_positions": 50}
        sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
        sizes |= {"encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
    tokens: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    module = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**sizes, **tokens))

    def draw() -> Batch:
        # The encoder halves the length of the spectrogram.
        features = torch.randn(1, module.config.num_mel_bins, 2 * module.config.max_source_positions)
        ids = _tokens(sizes["vocab_size"], 8 if small else 32)
        return {"input_features": features, "decoder_input_ids": ids, "use_cache": False}

    return Workload(module, draw, logits, next_token)


def mamba(*, small: bool) -> Workload:
    """Gu and Dao 2023, four layers of the 130M model in PyTorch's ops; small: two of width 64."""
    import transformers

    sizes: dict[str, Any] = {"num_hidden_layers": 4}
    if small:
        sizes = {"num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 500}
    module = transformers.MambaForCausalLM(transformers.MambaConfig(**sizes))
    return Workload(module, partial(_text, module, 16 if small else 64), logits, next_token)


def timm(name: str, *, small: bool) -> Workload:
    """An image classifier of timm at the size of its images; small: two images, of 64 pixels.

    Raises:
        MissingDependency: timm is not installed.
    """
    sizes = Sizes(batch_size=2, image_size=64) if small else Sizes(batch_size=32)
    subject = TimmModel(name).build({"num_classes": 32}, sizes, torch.float32)
    [images] = subject.args
    return Workload(subject.module, lambda: {"x": torch.randn_like(images)}, plain, classes)


#: Of transformers, by name.
TRANSFORMERS: dict[str, Callable[..., Workload]] = {
    function.__name__: function for function in (resnet50, vit_b, bert_base, gpt2, llama, whisper_tiny, mamba)
}
#: Of timm: a convolution of every kind, and a transformer.
TIMM = ("resnet50", "mobilenetv3_large_100", "efficientnet_b0", "convnext_tiny", "vit_small_patch16_224")


def _images(pixels: int) -> Batch:
    return {"pixel_values": torch.randn(1, 3, pixels, pixels)}


def _text(module: Any, length: int) -> Batch:
    return {"input_ids": _tokens(module.config.vocab_size, length), "use_cache": False}


def _tokens(vocabulary: int, length: int, *, batch: int = 1) -> Tensor:
    return torch.randint(vocabulary, (batch, length))


def _narrow_encoder() -> dict[str, Any]:
    return {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}


def _undropped() -> dict[str, Any]:
    return {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
