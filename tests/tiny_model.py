"""A language model of a few thousand random weights, as a file that llama.cpp reads.

Its vocabulary is bytes, so it takes any text, and what it says has no meaning.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HEADS, CONTEXT = 32, 2, 8192
#: <unk>, <s>, </s> and the 256 bytes, with the kinds that llama.cpp gives them.
TOKENS = [("<unk>", 2), ("<s>", 3), ("</s>", 3), *((f"<0x{byte:02X}>", 6) for byte in range(256))]
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9
_ALIGNMENT = 32


def write_model(path: Path, *, seed: int = 0) -> None:
    """Write a model of the architecture `llama` in the format GGUF, version 3."""
    drawn = np.random.default_rng(seed)
    square, words = (WIDTH, WIDTH), (len(TOKENS), WIDTH)
    shapes = {"token_embd": words, "output": words, "output_norm": (WIDTH,)}
    shapes |= {f"blk.0.{name}": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    shapes |= {f"blk.0.{name}": square for name in names}
    facts: dict[str, tuple[int, Any]] = {
        "general.architecture": (_STRING, "llama"),
        "general.name": (_STRING, "random"),
        "llama.context_length": (_UINT32, CONTEXT),
        "llama.embedding_length": (_UINT32, WIDTH),
        "llama.block_count": (_UINT32, 1),
        "llama.feed_forward_length": (_UINT32, WIDTH),
        "llama.attention.head_count": (_UINT32, HEADS),
        "llama.attention.layer_norm_rms_epsilon": (_FLOAT32, 1e-5),
        "llama.rope.dimension_count": (_UINT32, WIDTH // HEADS),
        "tokenizer.ggml.model": (_STRING, "llama"),
        "tokenizer.ggml.tokens": (_ARRAY, (_STRING, [text for text, _ in TOKENS])),
        "tokenizer.ggml.scores": (_ARRAY, (_FLOAT32, [0.0] * len(TOKENS))),
        "tokenizer.ggml.token_type": (_ARRAY, (_INT32, [kind for _, kind in TOKENS])),
        "tokenizer.ggml.bos_token_id": (_UINT32, 1),
        "tokenizer.ggml.eos_token_id": (_UINT32, 2),
    }
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(facts))
    head += b"".join(
        _string(name) + struct.pack("<I", kind) + _value(kind, value) for name, (kind, value) in facts.items()
    )
    data = b""
    for name, shape in shapes.items():
        head += _string(f"{name}.weight") + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}QIQ", *reversed(shape), 0, len(data))
        weights = drawn.normal(size=shape) if len(shape) > 1 else np.ones(shape)
        data += _padded(weights.astype("<f4").tobytes())
    path.write_bytes(_padded(head) + data)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _string(value)
    if kind == _ARRAY:
        inner, values = value
        return struct.pack("<IQ", inner, len(values)) + b"".join(_each(inner, values))
    return struct.pack({_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f"}[kind], value)


def _each(kind: int, values: Iterable[Any]) -> Iterable[bytes]:
    return (_value(kind, value) for value in values)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNMENT)
