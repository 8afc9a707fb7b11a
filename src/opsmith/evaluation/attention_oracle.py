"""Fused attention and its gradients in float64, by the textbook's formulas, with what its condition explains.

The fused ops have no float64 kernels on CUDA. With probabilities p, scores s and a gradient g of the result o:
dv = p^T g, ds = p (g v^T - g . o), dq = ds k, dk = ds^T q. A gradient takes p and g . o from the results of the forward
call that it is given, as every implementation does.

Eager rounds p and ds to the inputs' dtype, where that is a half type: half a unit in the last place each. In float32 a
score may err by the size of its terms, |q| |k|, and so may p by as much of itself, and ds besides by its own terms,
|g| |v| and |g| |o|: a difference of two that are nearly the same has few digits left.

A dropout leaves z of the weights, 0 or 1 / (1 - its probability): dv = (p z)^T g and ds = p (z (g v^T) - g . o). That
of memory-efficient attention is known, by the seed and the offset that its forward call returned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from opsmith.evaluation import philox
from opsmith.evaluation.opinion import LINEAR_SLACK, Opinion

#: Half types, whose probabilities are rounded.
HALVES = (torch.bfloat16, torch.float16)

FORWARDS = frozenset(
    {
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
        *("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_efficient_attention_forward"),
    }
)
BACKWARDS = frozenset({*(f"{name}_backward" for name in FORWARDS), "_efficient_attention_backward"})
#: Its kinds of masks.
_TOP_LEFT, _BOTTOM_RIGHT = 1, 2


def attention(arguments: Mapping[str, Any]) -> Opinion | None:
    """The first result of a fused attention; its condition is the same average taken over the values' magnitudes.

    None of ragged batches, and of a dropout.
    """
    if "custom_mask_type" in arguments:
        return _attention_of_rows(arguments)
    query, key, value = (arguments[name].double() for name in ("query", "key", "value"))
    mask = _mask(arguments)

    def attend(values: torch.Tensor) -> torch.Tensor:
        causal, scale = arguments["is_causal"], arguments.get("scale")
        textbook = torch.ops.aten._scaled_dot_product_attention_math
        result: torch.Tensor = textbook(query, key, values, mask, 0.0, causal, scale=scale)[0]
        return result.cpu()

    eps, half = _roundings(arguments["query"].dtype)
    return Opinion(attend(value), (half or eps) * attend(value.abs()))


def _attention_of_rows(arguments: Mapping[str, Any]) -> Opinion | None:
    """As :func:`attention`, of the overload whose tensors (B, M, H, D) have rows before heads."""
    unknown = ("cu_seqlens_q", "cu_seqlens_k", "seqlen_k", "window_size")
    if arguments["dropout_p"] or any(arguments.get(name) is not None for name in unknown):
        return None
    query, key, value = (arguments[name].transpose(1, 2).double() for name in ("query", "key", "value"))
    scale = arguments.get("scale") or 1 / math.sqrt(query.shape[-1])
    scores = query @ key.mT * scale
    if arguments["bias"] is not None:
        scores = scores + arguments["bias"].double()
    if arguments["custom_mask_type"]:
        scores = scores.masked_fill(_hidden(scores, _beyond(arguments)), -math.inf)
    p = scores.softmax(-1).nan_to_num(0.0)  # A query that sees no key gets nothing.
    eps, half = _roundings(arguments["query"].dtype)
    slack = p * (half + eps * (1 + query.abs() @ key.abs().mT * scale))
    return Opinion((p @ value).transpose(1, 2).cpu(), (slack @ value.abs()).transpose(1, 2).cpu())


def gradients(arguments: Mapping[str, Any]) -> list[Opinion] | None:
    """The gradients of query, key, value and, where there is one, of the mask.

    None of ragged batches, and of a dropout that is not known.
    """
    if "custom_mask_type" in arguments:
        return _gradients_of_rows(arguments)
    query, key, value, out = (arguments[name].double() for name in ("query", "key", "value", "out"))
    gradient = arguments["grad_out" if "grad_out" in arguments else "grad_out_"].double()
    left = _left(arguments)
    if left is None:
        return None
    shared = query.shape[-3] // key.shape[-3]
    key, value = (tensor.repeat_interleave(shared, -3) for tensor in (key, value))
    scale = arguments.get("scale") or 1 / math.sqrt(query.shape[-1])
    mask = _mask(arguments)
    p = _probabilities(query @ key.mT * scale, mask, arguments)
    delta = (gradient * out).sum(-1, keepdim=True)
    ds = p * (left * (gradient @ value.mT) - delta)

    eps, half = _roundings(arguments["query"].dtype)
    terms = query.abs() @ key.abs().mT * scale
    p_slack = p * (half + eps * (1 + terms))
    terms_of_ds = left * (gradient.abs() @ value.abs().mT) + (gradient * out).abs().sum(-1, keepdim=True)
    ds_slack = ds.abs() * (half + eps * (1 + terms)) + eps * p * terms_of_ds

    def joined(tensor: torch.Tensor) -> torch.Tensor:
        """Summed over the heads that share a key."""
        heads: torch.Tensor = tensor.unflatten(-3, (tensor.shape[-3] // shared, shared))
        return heads.sum(-3).cpu()

    results = [
        Opinion((ds @ key * scale).cpu(), (ds_slack @ key.abs() * scale).cpu()),
        Opinion(joined(ds.mT @ query * scale), joined(ds_slack.mT @ query.abs() * scale)),
        Opinion(joined((left * p).mT @ gradient), joined((left * p_slack).mT @ gradient.abs())),
    ]
    if mask is not None:
        results.append(Opinion(ds.sum_to_size(mask.shape).cpu(), ds_slack.sum_to_size(mask.shape).cpu()))
    return results


def _gradients_of_rows(arguments: Mapping[str, Any]) -> list[Opinion] | None:
    """As :func:`gradients`, of the overload whose tensors have rows before heads."""
    if any(arguments.get(name) is not None for name in ("cu_seqlens_q", "cu_seqlens_k", "window_size")):
        return None
    swapped = {name: arguments[name].transpose(1, 2) for name in ("query", "key", "value", "out", "grad_out_")}
    kept = ("logsumexp", "dropout_p", "philox_seed", "philox_offset", "scale")
    heads = {
        **swapped,
        **{name: arguments[name] for name in kept},
        "attn_bias": arguments["bias"],
        "is_causal": arguments["custom_mask_type"] in (_TOP_LEFT, _BOTTOM_RIGHT),
        "beyond": _beyond(arguments),
    }
    opinions = gradients(heads)
    if opinions is None:
        return None
    first = [
        Opinion(value.transpose(1, 2), slack.transpose(1, 2)) for value, slack, _ in opinions[:3] if slack is not None
    ]
    return first + opinions[3:]


def _roundings(dtype: torch.dtype) -> tuple[float, float]:
    """What float32's roundings of terms come to, relative to them, and half a unit in the last place of a half type."""
    half = torch.finfo(dtype).eps / 2 if dtype in HALVES else 0.0
    return LINEAR_SLACK * torch.finfo(torch.float32).eps, half


def _beyond(arguments: Mapping[str, Any]) -> int:
    """How many more keys than one the first query sees."""
    queries, keys = arguments["query"].shape[1], arguments["key"].shape[1]
    return int(keys - queries) if arguments["custom_mask_type"] == _BOTTOM_RIGHT else 0


def _hidden(scores: torch.Tensor, beyond: int) -> torch.Tensor:
    """What a causal mask hides, whose first query sees the first key, however many there are, and ``beyond`` more."""
    return torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1 + beyond)


def _left(arguments: Mapping[str, Any]) -> torch.Tensor | float | None:
    """What a dropout left of the weights; None where nobody knows."""
    probability = arguments["dropout_p"]
    if not probability:
        return 1.0
    if "grad_out_" not in arguments:
        return None
    query = arguments["query"]
    shape = (*query.shape[:3], arguments["key"].shape[2])
    seed, first = (int(arguments[name].item()) for name in ("philox_seed", "philox_offset"))
    kept = philox.uniform(seed, first, math.prod(shape), query.device) > probability
    left: torch.Tensor = kept.double().view(shape) / (1 - probability)
    return left


def _mask(arguments: Mapping[str, Any]) -> torch.Tensor | None:
    mask = arguments.get("attn_bias", arguments.get("attn_mask"))
    if mask is None:
        return None
    assert isinstance(mask, torch.Tensor)
    return mask.double() if mask.is_floating_point() else mask


def _probabilities(scores: torch.Tensor, mask: torch.Tensor | None, arguments: Mapping[str, Any]) -> torch.Tensor:
    """exp(s - logsumexp), by the given one, whose rows may be padded; 0 where nothing may be seen."""
    if arguments["is_causal"]:
        scores = scores.masked_fill(_hidden(scores, arguments.get("beyond", 0)), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    logsumexp = arguments["logsumexp"].double().reshape(*scores.shape[:-2], -1)[..., : scores.shape[-2], None]
    return torch.where(scores == -math.inf, 0.0, (scores - logsumexp).exp())
