"""The overloads that ``scaled_dot_product_attention`` turns into, which differ in layouts and in what comes along.

``scaled_dot_product_attention`` itself picks one of them: flash attention, memory-efficient attention or cuDNN's on
CUDA, one of its own on a CPU. They compute the same numbers. What an overload is called with, how its results are laid
out, what ``is_causal`` means where there are other keys than queries, and what is returned of the dropout, is its own.
Memory-efficient attention drops what eager's does, so that either may take the gradients of the other's result, and
serves ragged batches. The dropouts of the others are declined, and so is most of what else the inner overloads take.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import torch

from ..common.launch import require_served
from ..random.philox import next_words
from .attention_backward import AttentionCall, Gradients, attention_gradients
from .attention_forward import LARGEST_HEAD, LSE_ROWS, Dropout, ScoreRule, Sequences, attend_heads, scale_of

HALVES = (torch.float16, torch.bfloat16)
#: Memory-efficient attention and the CPU's.
SERVED = (torch.float32, *HALVES)
#: The kinds of masks of ``_efficient_attention_forward``.
_TOP_LEFT, _BOTTOM_RIGHT = 1, 2

# ---------------------------------------------------------------- what all have in common


def _require(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dtypes: Sequence[torch.dtype], dropout_p: float = 0.0
) -> None:
    """Decline what is not served, of shapes (B, H, rows, columns).

    Raises:
        ValueError: shapes that do not fit.
        TypeError: several types.
        NotImplementedError: dropout, or a head that is too large.
    """
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"attention needs 4-d tensors, not {q.ndim}-d, {k.ndim}-d and {v.ndim}-d ones")
    require_served(q, k, v, dtypes=dtypes)
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"attention is not defined for {q.dtype}, {k.dtype} and {v.dtype}")
    fits = q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1:3] == v.shape[1:3] and q.shape[3] == k.shape[3]
    if not fits or q.shape[1] % max(k.shape[1], 1) or not all(q.shape[1:2] + q.shape[3:] + k.shape[1:2] + v.shape[3:]):
        raise ValueError(f"attention is not defined for {list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    if dropout_p:
        raise NotImplementedError("dropout is not served")
    if max(q.shape[3], v.shape[3]) > LARGEST_HEAD:
        raise NotImplementedError(f"heads of {max(q.shape[3], v.shape[3])} columns are not served")


def _expanded(bias: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    """The bias as (B, H, M, N), or None."""
    if bias is None:
        return None
    require_served(bias, dtypes=SERVED)
    shape = (*q.shape[:3], k.shape[2])
    if bias.ndim == 3 and bias.shape[0] == shape[0] * shape[1]:
        bias = bias.unflatten(0, shape[:2])
    return bias.expand(shape)


def _from_top_left(*, is_causal: bool) -> int | None:
    """A query sees the keys up to its own number."""
    return 0 if is_causal else None


def _from_bottom_right(q: torch.Tensor, k: torch.Tensor, *, is_causal: bool) -> int | None:
    """The last query sees all keys, each one before it one key less."""
    return k.shape[2] - q.shape[2] if is_causal and q.shape[2] > 1 else None


def _rows_first(x: torch.Tensor, columns: int | None = None) -> torch.Tensor:
    """An empty tensor of a shape (B, H, M, E), maybe with other columns, whose heads lie behind each other in a row."""
    B, H, M, E = x.shape
    return torch.empty((B, M, H, E if columns is None else columns), dtype=x.dtype, device=x.device).transpose(1, 2)


def _empty_like(x: torch.Tensor) -> torch.Tensor:
    """Laid out as ``empty_like`` lays out the rows first."""
    return torch.empty_like(x.transpose(1, 2)).transpose(1, 2)


def _state(q: torch.Tensor, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """The state of a dropout that did not take place, which nobody reads."""
    return torch.empty(shape, dtype=dtype, device=q.device)


# ---------------------------------------------------------------- flash attention


def scaled_dot_product_flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor | int | None, ...]:
    """Flash attention of heads (B, H, M, D), with the logarithms (B, H, M) of the sums of weights."""
    out, lse, *state = _flash(query, key, value, dropout_p, is_causal, return_debug_mask, scale)
    return out, lse, None, None, query.shape[2], key.shape[2], *state


def flash_attention_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,  # noqa: ARG001 - The shapes say.
    max_k: int,  # noqa: ARG001 - The shapes say.
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[torch.Tensor, ...]:
    """As :func:`scaled_dot_product_flash_attention`, of rows (B, M, H, D)."""
    _require_plain(cum_seq_q=cum_seq_q, cum_seq_k=cum_seq_k, seqused_k=seqused_k, alibi_slopes=alibi_slopes)
    _require_plain(window_size_left=window_size_left, window_size_right=window_size_right)
    _require_plain(block_table=block_table, num_splits=num_splits)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    out, *rest = _flash(q, k, v, dropout_p, is_causal, return_debug_mask, scale)
    return out.transpose(1, 2), *rest


def _flash(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    scale: float | None,
) -> tuple[torch.Tensor, ...]:
    _require(q, k, v, HALVES, dropout_p)
    if return_debug_mask:
        raise NotImplementedError("the mask of a dropout is not served")
    out = _empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    attend_heads(out, lse, q, k, v, _flash_rule(q, k, scale, is_causal=is_causal))
    state = _state(q, (2,), torch.uint64), _state(q, (), torch.uint64)
    return out, lse, *state, torch.empty(0, dtype=q.dtype, device=q.device)


def _flash_rule(q: torch.Tensor, k: torch.Tensor, scale: float | None, *, is_causal: bool) -> ScoreRule:
    return ScoreRule(scale_of(q, scale), None, _from_bottom_right(q, k, is_causal=is_causal), math.inf)


def scaled_dot_product_flash_attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,  # noqa: ARG001 - The shapes say.
    max_k: int,  # noqa: ARG001 - The shapes say.
    dropout_p: float,
    is_causal: bool,
    philox_seed: torch.Tensor,  # noqa: ARG001 - Of dropout.
    philox_offset: torch.Tensor,  # noqa: ARG001 - Of dropout.
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Gradients of query, key and value, laid out as these are."""
    _require(query, key, value, HALVES, dropout_p)
    _require_plain(cum_seq_q=cum_seq_q, cum_seq_k=cum_seq_k)
    into = Gradients(*map(_empty_like, (query, key, value)))
    rule = _flash_rule(query, key, scale, is_causal=is_causal)
    attention_gradients(into, AttentionCall(grad_out, query, key, value, out, logsumexp), rule)
    return into[:3]


def flash_attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: torch.Tensor,
    unused: torch.Tensor,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[torch.Tensor, ...]:
    """As :func:`scaled_dot_product_flash_attention_backward`, of rows (B, M, H, D)."""
    _require_plain(cum_seq_q=cum_seq_q, cum_seq_k=cum_seq_k)
    _require_plain(window_size_left=window_size_left, window_size_right=window_size_right)
    grad, q, k, v, result = (x.transpose(1, 2) for x in (grad_out, query, key, value, out))
    numbers = max_q, max_k, dropout_p, is_causal
    heads = scaled_dot_product_flash_attention_backward(
        grad, q, k, v, result, logsumexp, None, None, *numbers, rng_state, unused, scale=scale
    )
    return tuple(x.transpose(1, 2) for x in heads)


def _require_plain(**options: object) -> None:
    """Decline options that were given.

    Raises:
        NotImplementedError: with the first one's name.
    """
    for name, value in options.items():
        # Where there are no bounds of sequences autograd passes empty ones.
        if value is not None and not (isinstance(value, torch.Tensor) and value.ndim == 1 and value.numel() == 0):
            raise NotImplementedError(f"attention with {name} is not served")


# ---------------------------------------------------------------- memory-efficient attention


def scaled_dot_product_efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Memory-efficient attention of heads (B, H, M, D); the logarithms are padded to blocks, or there are none."""
    _require_own_keys(query, key)
    diagonal = _from_top_left(is_causal=is_causal)
    return _efficient(query, key, value, attn_bias, compute_log_sumexp, dropout_p, diagonal, scale)


def efficient_attention_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: torch.Tensor | None = None,
    window_size: int | None = None,
) -> tuple[torch.Tensor | int, ...]:
    """As :func:`scaled_dot_product_efficient_attention`, of rows (B, M, H, D)."""
    _require_plain(seqlen_k=seqlen_k, window_size=window_size)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    _require_own_keys(q, k)
    sequences = _sequences(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    if sequences is not None and (bias is not None or dropout_p or custom_mask_type == _BOTTOM_RIGHT):
        raise NotImplementedError("a bias, dropout or a mask from the last key on of ragged batches is not served")
    diagonal = _diagonal_of(custom_mask_type, q, k)
    out, *rest = _efficient(q, k, v, bias, compute_log_sumexp, dropout_p, diagonal, scale, sequences)
    longest = (query.shape[1], key.shape[1]) if sequences is None else sequences[2:]
    return out.transpose(1, 2), *rest, *longest


def _sequences(
    starts_q: torch.Tensor | None, starts_k: torch.Tensor | None, longest_q: int | None, longest_k: int | None
) -> Sequences | None:
    """The sequences of a ragged batch, if it is one.

    Raises:
        ValueError: one of the arguments is missing.
        NotImplementedError: starts that are not dense.
    """
    if starts_q is None and starts_k is None:
        return None
    if starts_q is None or starts_k is None or longest_q is None or longest_k is None:
        raise ValueError("a ragged batch needs the starts and the longest ones of queries and of keys")
    require_served(starts_q, starts_k, dtypes=(torch.int32,))
    if starts_q.shape != starts_k.shape or not starts_q.is_contiguous() or not starts_k.is_contiguous():
        raise NotImplementedError("starts of sequences have to be dense and as many of queries as of keys")
    return Sequences(starts_q, starts_k, longest_q, longest_k)


def _require_own_keys(q: torch.Tensor, k: torch.Tensor) -> None:
    """Refuse heads of queries that share heads of keys.

    Raises:
        ValueError: there are fewer heads of keys.
    """
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"attention needs as many heads of keys as of queries, not {k.shape[1]} and {q.shape[1]}")


def _diagonal_of(mask_type: int, q: torch.Tensor, k: torch.Tensor) -> int | None:
    if mask_type == _BOTTOM_RIGHT:
        return _from_bottom_right(q, k, is_causal=True)
    return _from_top_left(is_causal=mask_type == _TOP_LEFT)


def _efficient(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float,
    diagonal: int | None,
    scale: float | None,
    sequences: Sequences | None = None,
) -> tuple[torch.Tensor, ...]:
    _require(q, k, v, SERVED)
    dropout = _drawn(dropout_p, q, k)
    out = _rows_first(q, v.shape[3])
    batches, longest = q.shape[0], q.shape[2]
    if sequences is not None:
        batches, longest = sequences.starts_q.numel() - 1, sequences.longest_q
    rows = -(-longest // LSE_ROWS) * LSE_ROWS if compute_log_sumexp else 0
    lse = torch.empty((batches, q.shape[1], rows), dtype=torch.float32, device=q.device)
    rule = ScoreRule(scale_of(q, scale), _expanded(bias, q, k), diagonal, 0.0, dropout)
    attend_heads(out, lse if compute_log_sumexp else None, q, k, v, rule, sequences)
    # Eager has this state on the host.
    if dropout is None:
        return out, lse, *(torch.empty((), dtype=torch.int64, device="cpu") for _ in range(2))
    words = (bytearray(struct.pack("<Q", number)) for number in (dropout.seed, dropout.first))
    return out, lse, *(torch.frombuffer(word, dtype=torch.int64).view(()) for word in words)


def _drawn(probability: float, q: torch.Tensor, k: torch.Tensor) -> Dropout | None:
    """A dropout of the weights of (B, H, M, D) and (B, H, N, D), a word for each, if there is one."""
    if not probability:
        return None
    return Dropout(probability, *next_words(None, q.device, math.prod(q.shape[:3]) * k.shape[2]))


def _drawn_before(probability: float, seed: torch.Tensor, first: torch.Tensor) -> Dropout | None:
    """The dropout of the forward call that returned this state."""
    if not probability:
        return None
    if seed.is_cuda:
        raise NotImplementedError("a dropout out of a CUDA graph is not served")
    return Dropout(probability, int(seed.item()), int(first.item()))


def scaled_dot_product_efficient_attention_backward(
    grad_out_: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of query, key, value, and of the bias if that is asked for."""
    call = AttentionCall(grad_out_, query, key, value, out, logsumexp)
    dropout = _drawn_before(dropout_p, philox_seed, philox_offset)
    diagonal = _from_top_left(is_causal=is_causal)
    return _efficient_gradients(call, attn_bias, dropout, diagonal, scale, bias_requires_grad=grad_input_mask[3])


def efficient_attention_backward(
    grad_out_: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,  # noqa: ARG001 - The shapes say.
    max_seqlen_k: int,  # noqa: ARG001 - The shapes say.
    logsumexp: torch.Tensor,
    dropout_p: float,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    custom_mask_type: int,
    bias_requires_grad: bool,
    *,
    scale: float | None = None,
    num_splits_key: int | None = None,  # noqa: ARG001 - Nothing is split.
    window_size: int | None = None,
    shared_storage_dqdkdv: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """As :func:`scaled_dot_product_efficient_attention_backward`, of rows (B, M, H, D)."""
    _require_plain(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, window_size=window_size)
    if shared_storage_dqdkdv:
        raise NotImplementedError("gradients in one storage are not served")
    grad, q, k, v, result = (x.transpose(1, 2) for x in (grad_out_, query, key, value, out))
    call = AttentionCall(grad, q, k, v, result, logsumexp)
    diagonal = _diagonal_of(custom_mask_type, call.q, call.k)
    dropout = _drawn_before(dropout_p, philox_seed, philox_offset)
    *heads, dbias = _efficient_gradients(call, bias, dropout, diagonal, scale, bias_requires_grad=bias_requires_grad)
    return *(None if x is None else x.transpose(1, 2) for x in heads), dbias


def _efficient_gradients(
    call: AttentionCall,
    bias: torch.Tensor | None,
    dropout: Dropout | None,
    diagonal: int | None,
    scale: float | None,
    *,
    bias_requires_grad: bool,
) -> tuple[torch.Tensor | None, ...]:
    _require(call.q, call.k, call.v, SERVED)
    _require_own_keys(call.q, call.k)
    expanded = _expanded(bias, call.q, call.k)
    dbias = None
    if bias is not None and expanded is not None and bias_requires_grad:
        if bias.shape != expanded.shape:
            raise NotImplementedError("the gradient of a bias that is not expanded is not served")
        B, H, M, N = bias.shape
        row = -(-N // 16) * 16  # A row begins at a multiple of 16 elements.
        dbias = torch.empty_strided((B, H, M, N), (H * M * row, M * row, row, 1), dtype=bias.dtype, device=bias.device)
    into = Gradients(_rows_first(call.q), _rows_first(call.k), _rows_first(call.v), dbias)
    attention_gradients(into, call, ScoreRule(scale_of(call.q, scale), expanded, diagonal, 0.0, dropout))
    return tuple(into)


# ---------------------------------------------------------------- cuDNN's attention


def scaled_dot_product_cudnn_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,  # noqa: ARG001 - There is none.
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor | int | None, ...]:
    """Attention as cuDNN has it, of heads (B, H, M, D); the logarithms (B, H, M, 1) are there if they are asked for."""
    _require(query, key, value, HALVES, dropout_p)
    B, H, M, _ = query.shape
    out = _ordered_as(query, (B, H, M, value.shape[3]))
    lse = torch.empty((B, H, M, 1), dtype=torch.float32, device=query.device) if compute_log_sumexp else None
    rule = _cudnn_rule(query, key, attn_bias, scale, is_causal=is_causal)
    attend_heads(out, None if lse is None else lse.squeeze(3), query, key, value, rule)
    return out, lse, None, None, M, key.shape[2], _state(query), _state(query), None


def _cudnn_rule(
    q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor | None, scale: float | None, *, is_causal: bool
) -> ScoreRule:
    return ScoreRule(scale_of(q, scale), _expanded(bias, q, k), _from_top_left(is_causal=is_causal), math.inf)


def _ordered_as(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """An empty tensor whose dimensions follow each other in memory as those of ``x`` do."""
    if x.shape == shape:
        return torch.empty_like(x)
    step, strides = 1, [0] * len(shape)
    for dim in sorted(range(len(shape)), key=lambda d: (x.stride(d), -d)):
        strides[dim] = step
        step *= shape[dim]
    return torch.empty_strided(shape, strides, dtype=x.dtype, device=x.device)


def scaled_dot_product_cudnn_attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    philox_seed: torch.Tensor,  # noqa: ARG001 - Of dropout.
    philox_offset: torch.Tensor,  # noqa: ARG001 - Of dropout.
    attn_bias: torch.Tensor | None,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,  # noqa: ARG001 - The shapes say.
    max_k: int,  # noqa: ARG001 - The shapes say.
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Gradients of query, key and value, laid out as these are."""
    _require(query, key, value, HALVES, dropout_p)
    _require_plain(cum_seq_q=cum_seq_q, cum_seq_k=cum_seq_k)
    into = Gradients(*map(torch.empty_like, (query, key, value)))
    rule = _cudnn_rule(query, key, attn_bias, scale, is_causal=is_causal)
    attention_gradients(into, AttentionCall(grad_out, query, key, value, out, logsumexp.squeeze(3)), rule)
    return into[:3]


# ---------------------------------------------------------------- the CPU's attention


def scaled_dot_product_flash_attention_for_cpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Attention of heads (B, H, M, D); the logarithms (B, H, M) lie as (B, M, H)."""
    _require(query, key, value, SERVED, dropout_p)
    _require_one_size(query, value)
    (B, H, M), out = query.shape[:3], torch.empty_like(query)
    lse = torch.empty((B, M, H), dtype=torch.float32, device=query.device).transpose(1, 2)
    rule = _cpu_rule(query, key, attn_mask, scale, is_causal=is_causal)
    attend_heads(out, lse, query, key, value, rule)
    return out, lse


def _cpu_rule(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None, scale: float | None, *, is_causal: bool
) -> ScoreRule:
    return ScoreRule(scale_of(q, scale), _expanded(mask, q, k), _from_top_left(is_causal=is_causal), 0.0)


def _require_one_size(q: torch.Tensor, v: torch.Tensor) -> None:
    """Refuse values of another size than the keys'.

    Raises:
        ValueError: the sizes differ.
    """
    if q.shape[3] != v.shape[3]:
        raise ValueError(f"attention needs heads of one size, not {q.shape[3]} and {v.shape[3]}")


def scaled_dot_product_flash_attention_for_cpu_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Gradients of query, key and value, whose heads lie behind each other in a row."""
    _require(query, key, value, SERVED, dropout_p)
    _require_one_size(query, value)
    into = Gradients(*map(_rows_first, (query, key, value)))
    rule = _cpu_rule(query, key, attn_mask, scale, is_causal=is_causal)
    attention_gradients(into, AttentionCall(grad_out, query, key, value, out, logsumexp), rule)
    return into[:3]
