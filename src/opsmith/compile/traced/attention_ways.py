"""The ways of computing attention that torch has, as calls that may be recorded into a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import Tensor, fx

LIBRARY, FLASH, WINDOW, CUDNN = "library", "flash", "flash with a window", "cudnn"
#: cuDNN, with what a query gets that sees no key: zeros, or the mean of all values. Torch's libraries differ in it.
ZEROS, MEAN = "cudnn, zeros", "cudnn, mean"

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention.default
_FLASH_WITH_WINDOW = torch.ops.aten._flash_attention_forward.default
_CUDNN = torch.ops.aten._scaled_dot_product_cudnn_attention.default
#: Numbers that libraries read at once, and the widest heads that they take.
_AT_ONCE, _WIDEST = 8, 256


@dataclass(frozen=True)
class Form:
    """What a call of attention without dropout says beside its tensors.

    Attributes:
        is_causal: of the function.
        scale: of the function; a node where it is an input of the graph.
        grouped: whether heads of queries share keys and values.
        copied: whether the graph repeats these for each head, which the call does not need.
        window: where the mask says nothing else, how many keys a query sees: its own and those just before it.
    """

    is_causal: bool
    scale: float | fx.Node | None
    grouped: bool
    copied: bool = False
    window: int | None = None


def possible_ways(form: Form, like: Sequence[Tensor]) -> list[str]:
    """Names of ways to make a call; the first one is what the graph does. What torch's switches forbid is none.

    Args:
        form: of the call.
        like: query, key, value, in half precision, and a mask if there is one.
    """
    query, key, value, *masks = like
    names = [LIBRARY]
    if not all(map(_is_aligned, (query, key, value))):
        return names
    if torch.backends.cuda.flash_sdp_enabled() and not masks:
        names.append(FLASH)
    if torch.backends.cuda.flash_sdp_enabled() and form.window is not None:
        names.append(WINDOW)
    if torch.backends.cuda.cudnn_sdp_enabled() and key.shape[-2] % _AT_ONCE == 0:
        names.extend((CUDNN, ZEROS, MEAN) if masks else (CUDNN,))
    return names


def _is_aligned(tensor: Tensor) -> bool:
    """Whether each row begins at a multiple of 16 bytes, which libraries read at once and do not check here."""
    *strides, last = tensor.stride()
    width = tensor.shape[-1]
    fits = width % _AT_ONCE == 0 and width <= _WIDEST and last == 1 and tensor.numel() > 0
    return fits and all(stride % _AT_ONCE == 0 for stride in strides)


def attention(way: str, given: Sequence[Any], form: Form, like: Sequence[Tensor], *, keeps: bool) -> Any:
    """Make a call one way.

    Args:
        way: one of :func:`possible_ways`.
        given: query, key, value, and a mask if there is one: tensors, or nodes of a graph that records the call.
        form: of the call.
        like: the same as tensors.
        keeps: whether gradients are taken, which need the logarithms of sums.
    """
    if way == LIBRARY:
        return _as_it_stands(given, form)
    if way == FLASH:
        return _FLASH(*given, 0.0, form.is_causal, False, scale=form.scale)[0]
    if way == WINDOW:
        return _windowed(given, form, like[0].shape[2])
    return _through_cudnn(way, given, form, like, keeps=keeps)


def _as_it_stands(given: Sequence[Any], form: Form) -> Any:
    query, key, value, *masks = given
    grouped = form.grouped
    if form.copied:
        groups, grouped = query.shape[1] // key.shape[1], False
        key, value = (one.repeat_interleave(groups, 1) for one in (key, value))
    mask = masks[0] if masks else None
    options: dict[str, Any] = {"is_causal": form.is_causal, "scale": form.scale, "enable_gqa": grouped}
    return F.scaled_dot_product_attention(query, key, value, mask, **options)


def _windowed(given: Sequence[Any], form: Form, tokens: int) -> Any:
    """Flash attention that skips blocks outside of the window; it takes heads behind tokens."""
    assert form.window is not None
    query, key, value = (one.transpose(1, 2) for one in given[:3])
    made = _FLASH_WITH_WINDOW(
        *(query, key, value, None, None, tokens, tokens, 0.0, True, False),
        scale=form.scale,
        window_size_left=form.window - 1,
        window_size_right=0,
    )
    return made[0].transpose(1, 2)


def _through_cudnn(way: str, given: Sequence[Any], form: Form, like: Sequence[Tensor], *, keeps: bool) -> Any:
    query, key, value, *masks = given
    if not masks:
        return _CUDNN(query, key, value, None, keeps, 0.0, form.is_causal, False, scale=form.scale)[0]
    [mask], dtype = masks, like[0].dtype
    is_boolean = like[3].dtype == torch.bool
    hidden = torch.finfo(dtype).min if way == MEAN else -math.inf
    bias = (torch.where(mask, 0.0, hidden).to(dtype) if is_boolean else mask).contiguous()
    result = _CUDNN(query, key, value, bias, keeps, 0.0, form.is_causal, False, scale=form.scale)[0]
    if way != ZEROS:
        return result
    unseen = mask.logical_not() if is_boolean else mask.eq(-math.inf)
    return result.masked_fill(unseen.all(dim=-1, keepdim=True), 0)
