"""Fused attention and its gradients in float64, by the textbook's formulas, with what its condition explains.

The fused ops have no float64 kernels on CUDA. With probabilities p, scores s and a gradient g of the result o:
dv = p^T g, ds = p (g v^T - g . o), dq = ds k, dk = ds^T q. A gradient takes p and g . o from the results of the forward
call that it is given, as every implementation does.

Eager rounds p and ds to the inputs' dtype, where that is a half type: half a unit in the last place each. In float32 a
score may err by the size of its terms, |q| |k|, and so may p by as much of itself, and ds besides by its own terms,
|g| |v| and |g| |o|: a difference of two that are nearly the same has few digits left.

A dropout leaves z of the weights, 0 or 1 / (1 - its probability): dv = (p z)^T g and ds = p (z (g v^T) - g . o). That
of memory-efficient attention is known, by the seed and the offset that its forward call returned.

The logarithm of the sum of a query's weights errs by what its scores lose.

Queries come in blocks: the weights of some 50,000 queries and keys in 32 heads would take 750 GiB.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, starmap
from typing import Any

import torch

from opsmith.evaluation.oracle import philox
from opsmith.evaluation.oracle.error_bound import LINEAR_SLACK, Opinion

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
#: Weights of all heads that are made at once; some ten such tensors in float64 live together.
BLOCK_WEIGHTS = 1 << 26
#: Which result of a forward call the logarithms are.
LOGSUMEXP = 1
#: Memory-efficient attention pads them with infinities to a multiple of this.
_PADDED = frozenset({"_scaled_dot_product_efficient_attention", "_efficient_attention_forward"})
_PADDED_ROWS = 32
#: Kinds of masks of memory-efficient attention.
_TOP_LEFT, _BOTTOM_RIGHT = 1, 2


def attention(arguments: Mapping[str, Any]) -> Opinion | None:
    """The first result of a fused attention; its condition is the same average taken over the values' magnitudes.

    None of a dropout, and of ragged batches with a mask of numbers or a window.
    """
    if "custom_mask_type" in arguments:
        return _attention_of_rows(arguments)
    return Opinion(*_averages(arguments, of_scores=False))


def _attention_of_rows(arguments: Mapping[str, Any]) -> Opinion | None:
    """As :func:`attention`, of the overload whose tensors (B, M, H, D) have rows before heads."""
    calls = [] if arguments["dropout_p"] else _sequences(arguments)
    if not calls:
        return None
    averages = [_averages(_heads_first(call, ("query", "key", "value")), of_scores=True) for call in calls]
    value, slack = (torch.cat(parts, -2).transpose(1, 2) for parts in zip(*averages, strict=True))
    return Opinion(value, slack)


def _sequences(arguments: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The call itself, or one for each sequence of a ragged batch, which sees itself alone; none of masks and windows.

    Sequences lie behind each other in the one batch; the ends of all are said for queries and for keys.
    """
    if _is_plain(arguments):
        return [arguments]
    ragged = ("cu_seqlens_q", "cu_seqlens_k")
    alone = {**arguments, **dict.fromkeys(ragged)}
    if arguments["bias"] is not None or not _is_plain(alone) or any(arguments[name] is None for name in ragged):
        return []
    rows, keys = (list(starmap(slice, pairwise(arguments[name].tolist()))) for name in ragged)
    if rows[-1].stop != arguments["query"].shape[1]:
        return []  # Nobody says what the rows beyond the last sequence hold.
    return [
        {
            **alone,
            "query": arguments["query"][:, row],
            "key": arguments["key"][:, key],
            "value": arguments["value"][:, key],
        }
        for row, key in zip(rows, keys, strict=True)
    ]


def logsumexp(stem: str, arguments: Mapping[str, Any]) -> Opinion | None:
    """The logarithms of the sums of weights, which no dropout changes; their condition is what scores lose in float32.

    None of ragged batches.
    """
    if "custom_mask_type" in arguments:
        if not _is_plain(arguments):
            return None
        arguments = _heads_first(arguments, ("query", "key", "value"))
    key, scale = _for_all_heads(arguments, "key"), _scale(arguments)
    magnitudes, (eps, _) = key.abs(), _roundings(arguments["query"].dtype)
    logarithms, slacks = [], []
    for rows in _blocks(arguments):
        query = _rows(arguments["query"], rows).double()
        scores = _scores(query, key, rows, arguments)
        lost = _lost_by_scores(query, magnitudes, scale, eps)
        logarithms.append(scores.logsumexp(-1).cpu())
        slacks.append((scores.softmax(-1) * lost).sum(-1).nan_to_num(0.0).cpu())
    value, slack = torch.cat(logarithms, -1), torch.cat(slacks, -1)
    if stem == "_scaled_dot_product_cudnn_attention":
        return Opinion(value[..., None], slack[..., None])
    padding = (0, -value.shape[-1] % _PADDED_ROWS if stem in _PADDED else 0)
    pad = torch.nn.functional.pad
    return Opinion(pad(value, padding, value=math.inf), pad(slack, padding))


def explained_with_dropout(stem: str, arguments: Mapping[str, Any]) -> torch.Tensor | None:
    """The error that the condition of a forward call explains, whatever its dropout leaves.

    None of ragged batches, of other ops, and where everything is dropped.
    """
    probability = float(arguments.get("dropout_p", 0.0))
    if stem not in FORWARDS or probability >= 1 or not _is_plain(arguments):
        return None
    rows_first = "custom_mask_type" in arguments
    heads = _heads_first(arguments, ("query", "key", "value")) if rows_first else arguments
    explained = _averages(heads, of_scores=True)[1] / (1 - probability)
    return explained.transpose(1, 2) if rows_first else explained


def _is_plain(arguments: Mapping[str, Any]) -> bool:
    """Whether a call has no ragged batches and no windows."""
    unknown = ("cu_seqlens_q", "cu_seqlens_k", "seqlen_k", "window_size")
    return all(arguments.get(name) is None for name in unknown)


def _averages(arguments: Mapping[str, Any], *, of_scores: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Averages of the values, and what explains their error; ``of_scores``: also what scores may lose in float32."""
    key, value, scale = _keys(arguments)
    magnitudes = key.abs(), value.abs()
    eps, half = _roundings(arguments["query"].dtype)
    averages, slacks = [], []
    for rows in _blocks(arguments):
        query = _rows(arguments["query"], rows).double()
        scores = _scores(query, key, rows, arguments)
        # A query that sees no key gets nothing.
        p = scores.softmax(-1).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
        share = half + _lost_by_scores(query, magnitudes[0], scale, eps) if of_scores else half or eps
        averages.append((p @ value).cpu())
        slacks.append((share * p @ magnitudes[1]).cpu())
    return torch.cat(averages, -2), torch.cat(slacks, -2)


def gradients(arguments: Mapping[str, Any]) -> list[Opinion] | None:
    """The gradients of query, key, value and, where there is one, of the mask.

    None of ragged batches, and of a dropout that is not known.
    """
    if "custom_mask_type" in arguments:
        return _gradients_of_rows(arguments)
    if arguments["dropout_p"] and "grad_out_" not in arguments:
        return None
    query, mask = arguments["query"], _mask(arguments)
    key, value, _ = _keys(arguments)
    results = [query, key, value, *([] if mask is None else [mask])]
    sums, slacks = ([torch.zeros_like(result, dtype=torch.float64) for result in results] for _ in range(2))
    for rows in _blocks(arguments):
        _add_block(sums, slacks, rows, (key, value), arguments)
    groups = (arguments["key"].shape[-3], _shared(arguments))
    for totals in (sums, slacks):
        totals[1:3] = [total.unflatten(-3, groups).sum(-3) for total in totals[1:3]]
    return [Opinion(total.cpu(), slack.cpu()) for total, slack in zip(sums, slacks, strict=True)]


def _add_block(
    sums: Sequence[torch.Tensor],
    slacks: Sequence[torch.Tensor],
    rows: slice,
    keys: tuple[torch.Tensor, torch.Tensor],
    arguments: Mapping[str, Any],
) -> None:
    """Add what a block of queries gives to the gradients, and to what explains their errors."""
    gradients_name = "grad_out" if "grad_out" in arguments else "grad_out_"
    query, out, gradient = (_rows(arguments[name], rows).double() for name in ("query", "out", gradients_name))
    (key, value), scale, left = keys, _scale(arguments), _left(arguments, rows)
    scores = _scores(query, key, rows, arguments)
    # By the given sums, whose rows may be padded.
    logsumexp = arguments["logsumexp"].double().reshape(*scores.shape[:-2], -1)[..., rows, None]
    p = torch.where(scores == -math.inf, 0.0, (scores - logsumexp).exp())
    delta = (gradient * out).sum(-1, keepdim=True)
    ds = p * (left * (gradient @ value.mT) - delta)

    eps, half = _roundings(arguments["query"].dtype)
    share = half + _lost_by_scores(query, key.abs(), scale, eps)
    terms_of_ds = left * (gradient.abs() @ value.abs().mT) + (gradient * out).abs().sum(-1, keepdim=True)
    ds_slack = ds.abs() * share + eps * p * terms_of_ds
    _add_products(sums, rows, (ds, left * p), (key, query, gradient), scale)
    _add_products(slacks, rows, (ds_slack, left * p * share), (key.abs(), query.abs(), gradient.abs()), scale)


def _add_products(
    totals: Sequence[torch.Tensor],
    rows: slice,
    weights: tuple[torch.Tensor, torch.Tensor],
    factors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    scale: float,
) -> None:
    """Add ds k, ds^T q, p^T g and ds to gradients of query, key, value and mask."""
    of_query, of_key, of_value, *of_mask = totals
    (ds, p), (key, query, gradient) = weights, factors
    _rows(of_query, rows).copy_(ds @ key * scale)
    of_key += ds.mT @ query * scale
    of_value += p.mT @ gradient
    for total in of_mask:
        part = _rows(total, rows)
        part += ds.sum_to_size(part.shape)


def _gradients_of_rows(arguments: Mapping[str, Any]) -> list[Opinion] | None:
    """As :func:`gradients`, of the overload whose tensors have rows before heads."""
    if any(arguments.get(name) is not None for name in ("cu_seqlens_q", "cu_seqlens_k", "window_size")):
        return None
    heads = _heads_first(arguments, ("query", "key", "value", "out", "grad_out_"))
    opinions = gradients(heads)
    if opinions is None:
        return None
    first = [
        Opinion(value.transpose(1, 2), slack.transpose(1, 2)) for value, slack, *_ in opinions[:3] if slack is not None
    ]
    return first + opinions[3:]


def _heads_first(arguments: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The arguments of the overload whose tensors have rows before heads as the others have them."""
    kept = ("logsumexp", "dropout_p", "philox_seed", "philox_offset", "scale")
    return {
        **{name: arguments[name] for name in kept if name in arguments},
        **{name: arguments[name].transpose(1, 2) for name in names},
        "attn_bias": arguments["bias"],
        "is_causal": arguments["custom_mask_type"] in (_TOP_LEFT, _BOTTOM_RIGHT),
        "beyond": _beyond(arguments),
    }


def _roundings(dtype: torch.dtype) -> tuple[float, float]:
    """What float32's roundings of terms come to, relative to them, and half a unit in the last place of a half type."""
    half = torch.finfo(dtype).eps / 2 if dtype in HALVES else 0.0
    return LINEAR_SLACK * torch.finfo(torch.float32).eps, half


def _lost_by_scores(query: torch.Tensor, key_magnitudes: torch.Tensor, scale: float, eps: float) -> torch.Tensor:
    """How much scores may err, and so weights as a share of themselves: by the roundings of the terms of a product."""
    return eps * (1 + query.abs() @ key_magnitudes.mT * scale)


def _beyond(arguments: Mapping[str, Any]) -> int:
    """How many more keys than one the first query sees."""
    queries, keys = arguments["query"].shape[1], arguments["key"].shape[1]
    return int(keys - queries) if arguments["custom_mask_type"] == _BOTTOM_RIGHT else 0


def _blocks(arguments: Mapping[str, Any]) -> Iterator[slice]:
    """Blocks of queries whose weights are at most ``BLOCK_WEIGHTS``, or one query each."""
    *heads, queries, _ = arguments["query"].shape
    size = max(1, BLOCK_WEIGHTS // max(1, math.prod(heads) * arguments["key"].shape[-2]))
    for first in range(0, max(queries, 1), size):
        yield slice(first, min(first + size, queries))


def _rows(tensor: torch.Tensor, rows: slice) -> torch.Tensor:
    """Those rows of ``tensor``, or the one row that it has for all queries."""
    return tensor[..., rows, :] if tensor.shape[-2] > 1 else tensor


def _keys(arguments: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Keys and values in float64, repeated for the heads that share them, and the scale of scores."""
    return _for_all_heads(arguments, "key"), _for_all_heads(arguments, "value"), _scale(arguments)


def _for_all_heads(arguments: Mapping[str, Any], name: str) -> torch.Tensor:
    """Keys or values in float64, repeated for the heads that share them."""
    repeated: torch.Tensor = arguments[name].double().repeat_interleave(_shared(arguments), -3)
    return repeated


def _shared(arguments: Mapping[str, Any]) -> int:
    """How many heads share a key."""
    return int(arguments["query"].shape[-3] // max(arguments["key"].shape[-3], 1))


def _scale(arguments: Mapping[str, Any]) -> float:
    """What scores are multiplied by."""
    return float(arguments.get("scale") or 1 / math.sqrt(arguments["query"].shape[-1]))


def _left(arguments: Mapping[str, Any], rows: slice) -> torch.Tensor | float:
    """What a dropout left of a block's weights, each of which has a word of Philox, in order."""
    probability = arguments["dropout_p"]
    if not probability:
        return 1.0
    batch, heads, queries, _ = arguments["query"].shape
    keys, count = arguments["key"].shape[-2], rows.stop - rows.start
    seed, first = (int(arguments[name].item()) for name in ("philox_seed", "philox_offset"))
    words = [
        philox.uniform(seed, first + (head * queries + rows.start) * keys, count * keys, arguments["query"].device)
        for head in range(batch * heads)
    ]
    kept = torch.stack(words) > probability
    left: torch.Tensor = kept.double().view(batch, heads, count, keys) / (1 - probability)
    return left


def _mask(arguments: Mapping[str, Any]) -> torch.Tensor | None:
    mask = arguments.get("attn_bias", arguments.get("attn_mask"))
    assert mask is None or isinstance(mask, torch.Tensor)
    return mask


def _scores(query: torch.Tensor, key: torch.Tensor, rows: slice, arguments: Mapping[str, Any]) -> torch.Tensor:
    """Scores of a block of queries, with -inf where nothing may be seen.

    What a causal mask hides: its first query sees the first key, however many there are, and ``beyond`` more.
    """
    scores = query @ key.mT * _scale(arguments)
    if arguments["is_causal"]:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(hidden.triu(1 + arguments.get("beyond", 0) + rows.start), -math.inf)
    whole = _mask(arguments)
    if whole is None:
        return scores
    mask = _rows(whole, rows)
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.double()
