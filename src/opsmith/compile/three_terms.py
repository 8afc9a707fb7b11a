"""Products and convolutions of float32 by libraries' TF32, with three terms for each.

``x = high + low``, two TF32 numbers that hold 22 of its 24 bits, so that ``x * w`` is
``high * high' + high * low' + low * high'`` but for some 21 bits (Ootomo and Yokota, 2022). Laid side by side along
what is summed over, ``[high, high, low]`` times ``[high', low', high']`` is one product or convolution with three times
the terms, which the library makes on tensor cores and adds up in float32.

What is not finite is its own high and low part, and ``low`` is a tiny ``high`` where nothing is left: so an infinity
meets numbers of one sign in all three terms, and stays one. ``high`` is cut off, not rounded, for the same reason.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from opsmith.compile.opaque import define_like

aten = torch.ops.aten

#: Bits that TF32 keeps of float32.
_KEPT = -0x2000
#: Of a number of which nothing is left behind its high part.
_TINY = 2.0**-30

#: Overload -> the positions of the factors.
_FACTORS: Mapping[Any, tuple[int, ...]] = {
    aten.mm.default: (0, 1),
    aten.addmm.default: (1, 2),
    aten.bmm.default: (0, 1),
    aten.baddbmm.default: (1, 2),
    aten.convolution.default: (0, 1),
    #: The result's gradient, the input and the weight: two of them are the factors of a gradient.
    aten.convolution_backward.default: (0, 1, 2),
}
#: Where a convolution says its groups, and its gradient which results are wanted.
_GROUPS = {aten.convolution.default: 8, aten.convolution_backward.default: 9}
_MASK = 10


def takes_three_terms(op: Any, args: Sequence[Any]) -> bool:
    """Whether a call can be made this way: a convolution if it has one group."""
    return op in _FACTORS and (op not in _GROUPS or args[_GROUPS[op]] == 1)


class Parts(NamedTuple):
    """Numbers in float32, and two in TF32 for each, which lie as they do."""

    whole: Tensor
    high: Tensor
    low: Tensor


def parts_of(x: Tensor) -> Parts:
    """The parts of numbers."""
    high = torch.bitwise_and(x.view(torch.int32), _KEPT).view(torch.float32)
    left = x - high
    # Half of the last bit is added to the low part, away from zero, before the others go.
    low = torch.bitwise_and(torch.where(left == 0, high * _TINY, left).view(torch.int32) + 0x1000, _KEPT)
    return Parts(x, high, torch.where(x.abs() < torch.inf, low.view(torch.float32), x))


def with_parts(args: Sequence[Any], op: Any) -> list[Any]:
    """The arguments of a call with the parts of each factor in its place."""
    return [parts_of(one) if place in _FACTORS[op] else one for place, one in enumerate(args)]


def in_three_terms(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, channels_last: bool = False) -> Any:
    """What a call gives.

    Args:
        op: ATen's overload.
        args: of :func:`with_parts`.
        kwargs: of the call.
        channels_last: have images turned so, and turned back.
    """
    if op is aten.convolution.default:
        return _convolution(args, channels_last=channels_last)
    if op is aten.convolution_backward.default:
        return _convolution_backward(args, channels_last=channels_last)
    given = list(args)
    left, right = _FACTORS[op]
    given[left] = _joined(args[left], _LEFT, -1)
    given[right] = _joined(args[right], _RIGHT, -2)
    return tf32_overloads()[op](*given, **kwargs)


#: Parts of either factor, in the order of the terms.
_LEFT, _RIGHT = ("high", "high", "low"), ("high", "low", "high")


def _convolution(args: Sequence[Any], *, channels_last: bool) -> Tensor:
    x, weight, bias, *settings = args
    transposed = settings[3]
    x, weight = _joined(x, _LEFT, 1), _joined(weight, _RIGHT, 0 if transposed else 1)
    x, weight = (_images(one, channels_last=channels_last) for one in (x, weight))
    result: Tensor = tf32_overloads()[aten.convolution.default](x, weight, None, *settings)
    if channels_last:
        result = _row_major(result)
    # Not by the library, which would read and write the result once more.
    return result if bias is None else result + bias.view(-1, *[1] * (result.ndim - 2))


#: Dimensions of a tensor of images or volumes -> its layout with channels last.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _images(x: Tensor, *, channels_last: bool) -> Tensor:
    return x.contiguous(memory_format=CHANNELS_LAST[x.ndim]) if channels_last else x


def _row_major(x: Tensor) -> Tensor:
    """Also where dimensions of size 1 have the strides of another layout, which contiguous() leaves."""
    return x.contiguous().view(-1).view(x.shape)


def _convolution_backward(args: Sequence[Any], *, channels_last: bool) -> tuple[Tensor | None, ...]:
    """The gradient by the input sums over channels of the result, that by the weight over images."""
    grad, x, weight = (parts.whole for parts in args[:3])
    settings, mask = args[3:_MASK], args[_MASK]
    backward = tf32_overloads()[aten.convolution_backward.default]

    def called(grad: Tensor, x: Tensor, weight: Tensor, which: int) -> Tensor:
        given = (_images(one, channels_last=channels_last) for one in (grad, x, weight))
        result: Tensor = backward(*given, *settings, [place == which for place in range(3)])[which]
        return _row_major(result) if channels_last else result

    by_input = by_weight = by_bias = None
    if mask[0]:
        transposed = settings[4]
        channels = 1 if transposed else 0
        by_input = called(_joined(args[0], _LEFT, 1), x, _joined(args[2], _RIGHT, channels), 0)
    if mask[1]:
        by_weight = called(_joined(args[0], _LEFT, 0), _joined(args[1], _RIGHT, 0), weight, 1)
    if mask[2]:
        by_bias = grad.sum([0, *range(2, grad.ndim)])
    return by_input, by_weight, by_bias


def _joined(parts: Parts, order: Sequence[str], dim: int) -> Tensor:
    """Parts behind each other; a matrix that lies column by column goes on to do so."""
    found = [getattr(parts, part) for part in order]
    if dim < 0 and parts.whole.stride(-2) == 1 != parts.whole.stride(-1):
        return _turned(torch.cat([_turned(part) for part in found], -3 - dim))
    return torch.cat(found, dim)


def _turned(x: Tensor) -> Tensor:
    """The transposed matrices, by an overload that lowered graphs have."""
    return x.permute(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)


# ---------------------------------------------------------------- TF32 for one call


@functools.cache
def tf32_overloads() -> Mapping[Any, torch._ops.OpOverload]:
    """ATen's overload -> one of the library ``opsmith`` that allows TF32 for the call. From here on these exist."""
    return {op: _tf32_overload(op) for op in _FACTORS}


def _tf32_overload(op: torch._ops.OpOverload) -> torch._ops.OpOverload:
    def laid_out(*args: Any, **kwargs: Any) -> Any:
        # The layout of a convolution's result is to be known while compiling.
        result = op(*args, **kwargs)
        return _laid_out(result, args[0]) if op in _GROUPS else result

    def run(*args: Any, **kwargs: Any) -> Any:
        with _tf32_allowed():
            return laid_out(*args, **kwargs)

    return define_like(f"tf32_{op._schema.name.partition('::')[2]}", op, run, laid_out)


def _laid_out(results: Any, like: Tensor) -> Any:
    """Results row-major, or with channels last if ``like`` has them so."""
    turned = like.ndim in CHANNELS_LAST and like.is_contiguous(memory_format=CHANNELS_LAST[like.ndim])
    layout = CHANNELS_LAST[like.ndim] if turned and not like.is_contiguous() else torch.contiguous_format

    def laid_out(x: Tensor) -> Tensor:
        return x.contiguous(memory_format=layout if x.ndim == like.ndim else torch.contiguous_format)

    return tree_map_only(Tensor, laid_out, results)


@contextlib.contextmanager
def _tf32_allowed() -> Iterator[None]:
    """For products and convolutions, whatever this process has set; other threads see it for as long."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = matmul.fp32_precision, convolution.fp32_precision
    # Torch keeps the older setting of products beside the newer one, and asks that they agree.
    torch._C._set_cublas_allow_tf32(True)
    convolution.fp32_precision = "tf32"
    try:
        yield
    finally:
        torch._C._set_cublas_allow_tf32(before[0] == "tf32")
        matmul.fp32_precision, convolution.fp32_precision = before
