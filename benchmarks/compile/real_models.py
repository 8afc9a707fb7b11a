"""Models at the sizes that people run, from configurations of transformers and timm, with random weights.

Each is built on the device in one dtype and says how it is called. Weights and inputs come from torch's generator.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

#: What a call keeps between calls: a cache of keys and values, one for each column.
State = dict[str, Any]


class Called(NamedTuple):
    """A model and how it is called.

    Attributes:
        module: on its device, in its dtype.
        call: of the module, compiled or not, with a state of its own; returns what is compared.
        loss: of the module in training; None for a model that is only asked in inference.
    """

    module: nn.Module
    call: Callable[[Callable[..., Any], State], Tensor]
    loss: Callable[[Callable[..., Any]], Tensor] | None = None


class Place(NamedTuple):
    """Where and how a model is built.

    Attributes:
        device: its device.
        dtype: of its parameters.
        small: at a size for machines without a GPU.
    """

    device: str
    dtype: torch.dtype
    small: bool

    def size(self, full: int, small: int) -> int:
        """One of two sizes."""
        return small if self.small else full

    def tokens(self, vocabulary: int, *shape: int) -> Tensor:
        """Random ones."""
        return torch.randint(vocabulary, shape, device=self.device)

    def images(self, batch: int, pixels: int = 224) -> Tensor:
        """Random ones with three channels."""
        batch, pixels = self.size(batch, 2), self.size(pixels, 64)
        return torch.randn(batch, 3, pixels, pixels, device=self.device, dtype=self.dtype)

    def build(self, make: Callable[[], nn.Module]) -> nn.Module:
        """A module here, in evaluation mode."""
        with _default_dtype(self.dtype), torch.device(self.device):
            return make().eval()


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _decoder(place: Place, config: Any, batch: int, length: int) -> Called:
    """A decoder on whole texts, and its loss on them."""
    transformers: Any = importlib.import_module("transformers")

    module = place.build(lambda: transformers.AutoModelForCausalLM.from_config(config))
    ids = place.tokens(config.vocab_size, place.size(batch, 2), place.size(length, 16))
    return Called(
        module,
        lambda run, _: run(ids, use_cache=False).logits,
        lambda run: run(ids, labels=ids, use_cache=False).loss,
    )


def _decoding(place: Place, config: Any, batch: int, cache_length: int, prompt: int) -> Called:
    """One step of a decoder with a static cache, after a prompt."""
    transformers: Any = importlib.import_module("transformers")

    module = place.build(lambda: transformers.AutoModelForCausalLM.from_config(config))
    batch = place.size(batch, 2)
    first = place.tokens(config.vocab_size, batch, place.size(prompt, 8))
    ids = place.tokens(config.vocab_size, batch, 1)

    def call(run: Callable[..., Any], state: State) -> Tensor:
        if "cache" not in state:
            length = place.size(cache_length, 512)
            state["cache"] = transformers.StaticCache(config=module.config, max_cache_len=length)
            module(first, past_key_values=state["cache"])
        elif state["left"] == 0:  # Begin the cache anew before it is full.
            state["cache"].reset()
            module(first, past_key_values=state["cache"])
        if state.get("left", 0) == 0:
            state["left"] = place.size(cache_length, 512) - first.shape[1] - 1
        state["left"] -= 1
        return run(ids, past_key_values=state["cache"]).logits  # type: ignore[no-any-return]

    return Called(module, call)


def _llama(place: Place, layers: int = 16) -> Any:
    transformers: Any = importlib.import_module("transformers")

    if place.small:
        return transformers.LlamaConfig(
            **_small_decoder(), num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True
        )
    return transformers.LlamaConfig(
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )


def _small_decoder() -> dict[str, Any]:
    return {"vocab_size": 500, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}


def llama_1b_prefill(place: Place) -> Called:
    """Llama 3.2 1B on four texts of 2,048 tokens."""
    return _decoder(place, _llama(place), 4, 2048)


def llama_1b_decode(place: Place) -> Called:
    """The same, one token of eight texts with a static cache of 3,072."""
    return _decoding(place, _llama(place), 8, 3072, 128)


def llama_6_layers(place: Place) -> Called:
    """Six of its layers on four texts of 2,048 tokens, for training."""
    return _decoder(place, _llama(place, 6), 4, 2048)


def qwen3_decode(place: Place) -> Called:
    """Qwen3 0.6B, one token of one text with a static cache of 4,096."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
    }
    heads: dict[str, Any] = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
    config = transformers.Qwen3Config(**(_small_decoder() if place.small else sizes), **heads)
    return _decoding(place, config, 1, 4096, 64)


def mistral_prefill(place: Place) -> Called:
    """Eight layers of Mistral 7B with a window of 1,024, on a text of 4,096 tokens."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 8,
    }
    heads: dict[str, Any] = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    config = transformers.MistralConfig(
        **(_small_decoder() if place.small else sizes), **heads, sliding_window=place.size(1024, 4)
    )
    return _decoder(place, config, 1, 4096)


def gemma_prefill(place: Place) -> Called:
    """Gemma 2B with heads of 256, eight layers, on two texts of 2,048 tokens."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {
        "vocab_size": 256_000,
        "hidden_size": 2048,
        "intermediate_size": 16_384,
        "num_hidden_layers": 8,
    }
    config = transformers.GemmaConfig(**(_small_decoder() if place.small else sizes))
    return _decoder(place, config, 2, 2048)


def mixtral_prefill(place: Place) -> Called:
    """Eight layers with eight experts of which two are taken, on four texts of 1,024 tokens."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {
        "vocab_size": 32_000,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 8,
    }
    heads: dict[str, Any] = {"num_attention_heads": 16, "num_key_value_heads": 4, "num_local_experts": 8}
    config = transformers.MixtralConfig(**(_small_decoder() if place.small else sizes), **heads)
    return _decoder(place, config, 4, 1024)


def gpt2_medium(place: Place) -> Called:
    """GPT-2 of 24 layers on eight texts of 1,024 tokens."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 500}
    sizes = sizes if place.small else {"n_embd": 1024, "n_layer": 24, "n_head": 16}
    return _decoder(place, transformers.GPT2Config(**sizes, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0), 8, 1024)


def opt_350m(place: Place) -> Called:
    """OPT of 24 layers on eight texts of 1,024 tokens."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "ffn_dim": 128,
        "num_attention_heads": 4,
        "vocab_size": 500,
    }
    full: dict[str, Any] = {"hidden_size": 1024, "num_hidden_layers": 24, "ffn_dim": 4096, "num_attention_heads": 16}
    chosen: dict[str, Any] = {
        **(sizes if place.small else full),
        "word_embed_proj_dim": place.size(512, 64),
        "dropout": 0.0,
    }
    return _decoder(place, transformers.OPTConfig(**chosen), 8, 1024)


def mamba_130m(place: Place) -> Called:
    """Four layers in PyTorch's ops, on two texts of 256 tokens."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = (
        {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 500} if place.small else {"num_hidden_layers": 4}
    )
    return _decoder(place, transformers.MambaConfig(**sizes), 2, 64)


def _bert(place: Place) -> nn.Module:
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    }
    if place.small:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    dropped: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return place.build(lambda: transformers.BertForMaskedLM(transformers.BertConfig(**sizes, **dropped)))


def bert_large(place: Place) -> Called:
    """32 texts of 512 tokens."""
    module = _bert(place)
    ids = place.tokens(30_000, place.size(32, 2), place.size(512, 16))
    return Called(module, lambda run, _: run(ids).logits, lambda run: run(ids, labels=ids).loss)


def bert_large_padded(place: Place) -> Called:
    """The same, half of the texts padded to it from 300."""
    module = _bert(place)
    length = place.size(512, 16)
    ids = place.tokens(30_000, place.size(32, 2), length)
    mask = torch.ones_like(ids)
    mask[::2, 6 * length // 10 :] = 0
    return Called(module, lambda run, _: run(ids, attention_mask=mask).logits)


def t5_base(place: Place) -> Called:
    """Eight texts of 512 tokens, of which 128 are written."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
    if place.small:
        sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(vocab_size=32_128, **sizes, dropout_rate=0.0, decoder_start_token_id=0)
    module = place.build(lambda: transformers.T5ForConditionalGeneration(config))
    given = place.tokens(32_000, place.size(8, 2), place.size(512, 16))
    written = place.tokens(32_000, place.size(8, 2), place.size(128, 8))
    return Called(
        module,
        lambda run, _: run(given, decoder_input_ids=written, use_cache=False).logits,
        lambda run: run(given, labels=written, use_cache=False).loss,
    )


def whisper_small(place: Place) -> Called:
    """Eight times thirty seconds and 128 tokens."""
    transformers: Any = importlib.import_module("transformers")

    width, layers = place.size(768, 64), place.size(12, 2)
    config = transformers.WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=place.size(12, 4),
        decoder_attention_heads=place.size(12, 4),
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_source_positions=place.size(1500, 50),
    )
    module = place.build(lambda: transformers.WhisperForConditionalGeneration(config))
    frames = 2 * config.max_source_positions
    sound = torch.randn(place.size(8, 2), config.num_mel_bins, frames, device=place.device, dtype=place.dtype)
    ids = place.tokens(50_000, place.size(8, 2), place.size(128, 8))
    return Called(
        module,
        lambda run, _: run(sound, decoder_input_ids=ids, use_cache=False).logits,
        lambda run: run(sound, labels=ids, use_cache=False).loss,
    )


def wav2vec2(place: Place) -> Called:
    """The base encoder on eight times ten seconds."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    config = transformers.Wav2Vec2Config(**(sizes if place.small else {}))
    module = place.build(lambda: transformers.Wav2Vec2Model(config))
    sound = torch.randn(place.size(8, 2), place.size(160_000, 4000), device=place.device, dtype=place.dtype)
    return Called(module, lambda run, _: run(sound).last_hidden_state)


def clip(place: Place) -> Called:
    """CLIP with patches of 32 pixels on 64 images and texts."""
    transformers: Any = importlib.import_module("transformers")

    narrow: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    config = transformers.CLIPConfig()
    if place.small:
        config = transformers.CLIPConfig(text_config=narrow, vision_config={**narrow, "image_size": 64})
    module = place.build(lambda: transformers.CLIPModel(config))
    images = place.images(64)
    ids = place.tokens(49_000, len(images), place.size(77, 16))
    return Called(module, lambda run, _: run(input_ids=ids, pixel_values=images).logits_per_image)


def _vision(module: nn.Module, images: Tensor, name: str) -> Called:
    return Called(module, lambda run, _: getattr(run(pixel_values=images), name))


def vit_large(place: Place) -> Called:
    """64 images in patches of 16 pixels."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    sizes |= {"intermediate_size": 4096}
    if place.small:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
        sizes |= {"image_size": 64}
    module = place.build(lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**sizes)))
    images = place.images(64)
    classes = torch.zeros(len(images), dtype=torch.long, device=place.device)
    return Called(
        module,
        lambda run, _: run(images).logits,
        lambda run: run(images, labels=classes).loss,
    )


def segformer_b2(place: Place) -> Called:
    """Segmentation of eight images of 512 pixels."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {"depths": [3, 4, 6, 3], "hidden_sizes": [64, 128, 320, 512], "decoder_hidden_size": 768}
    if place.small:
        sizes = {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 40, 64], "decoder_hidden_size": 32}
    module = place.build(lambda: transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(**sizes)))
    return _vision(module, place.images(8, 512), "logits")


def yolos_small(place: Place) -> Called:
    """Detection by a transformer, four images of 512 pixels."""
    transformers: Any = importlib.import_module("transformers")

    sizes: dict[str, Any] = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    if place.small:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    pixels = place.size(512, 64)
    config = transformers.YolosConfig(**sizes, image_size=[pixels, pixels])
    module = place.build(lambda: transformers.YolosForObjectDetection(config))
    return _vision(module, place.images(4, 512), "logits")


def _timm(name: str, batch: int) -> Callable[[Place], Called]:
    def build(place: Place) -> Called:
        timm: Any = importlib.import_module("timm")

        module = place.build(lambda: timm.create_model(name, num_classes=place.size(1000, 10)))
        images = place.images(batch)
        classes = torch.zeros(len(images), dtype=torch.long, device=place.device)
        return Called(
            module,
            lambda run, _: run(images),
            lambda run: nn.functional.cross_entropy(run(images).float(), classes),
        )

    build.__doc__ = f"{name} of timm on {batch} images."
    return build


class Recommender(nn.Module):
    """Naumov et al. 2019: embeddings of categories, their inner products, and two perceptrons."""

    def __init__(self, categories: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(categories))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU())
        self.bottom.append(nn.Linear(256, width))
        pairs = (categories + 1) * categories // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU())
        self.top.append(nn.Linear(512, 1))
        self.register_buffer("pairs", torch.tril_indices(categories + 1, categories + 1, -1))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """``[batch, 13]`` and ``[batch, categories]`` to ``[batch, 1]``."""
        dense = self.bottom(numbers)
        rows = torch.stack([dense, *(table(categories[:, at]) for at, table in enumerate(self.tables))], 1)
        products = rows @ rows.transpose(1, 2)
        return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1))  # type: ignore[index,no-any-return]


def recommender(place: Place) -> Called:
    """26 categories of 100,000 rows, a batch of 2,048."""
    rows, batch = place.size(100_000, 50), place.size(2048, 4)
    module = place.build(lambda: Recommender(26, rows, 64))
    numbers = torch.randn(batch, 13, device=place.device, dtype=place.dtype)
    categories = place.tokens(rows, batch, 26)
    return Called(
        module,
        lambda run, _: run(numbers, categories),
        lambda run: run(numbers, categories).float().square().mean(),
    )


MODELS: dict[str, Callable[[Place], Called]] = {
    function.__name__: function
    for function in (
        llama_1b_prefill,
        llama_1b_decode,
        llama_6_layers,
        qwen3_decode,
        mistral_prefill,
        gemma_prefill,
        mixtral_prefill,
        gpt2_medium,
        opt_350m,
        mamba_130m,
        bert_large,
        bert_large_padded,
        t5_base,
        whisper_small,
        wav2vec2,
        clip,
        vit_large,
        segformer_b2,
        yolos_small,
        recommender,
    )
} | {
    name: _timm(name, 64)
    for name in (
        "resnet50",
        "convnext_base",
        "swin_base_patch4_window7_224",
        "efficientnet_b0",
        "mobilenetv3_large_100",
        "deit_small_patch16_224",
    )
}
