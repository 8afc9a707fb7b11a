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
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

#: Bits that TF32 keeps of float32.
_KEPT = -0x2000
#: Of a number of which nothing is left behind its high part.
_TINY = 2.0**-30

#: Overload -> the positions of both factors.
_FACTORS: Mapping[Any, tuple[int, int]] = {
    aten.mm.default: (0, 1),
    aten.addmm.default: (1, 2),
    aten.bmm.default: (0, 1),
    aten.baddbmm.default: (1, 2),
    aten.convolution.default: (0, 1),
}
_TRANSPOSED, _GROUPS = 6, 8


def takes_three_terms(op: Any, args: Sequence[Any]) -> bool:
    """Whether a call can be made this way: a convolution if it has one group."""
    return op in _FACTORS and (op is not aten.convolution.default or args[_GROUPS] == 1)


Parts = tuple[Tensor, Tensor]


def parts_of(x: Tensor) -> Parts:
    """The high and the low part of float32, laid out as it is."""
    high = torch.bitwise_and(x.view(torch.int32), _KEPT).view(torch.float32)
    left = x - high
    # Half of the last bit is added to the low part, away from zero, before the others go.
    low = torch.bitwise_and(torch.where(left == 0, high * _TINY, left).view(torch.int32) + 0x1000, _KEPT)
    return high, torch.where(x.abs() < torch.inf, low.view(torch.float32), x)


def with_parts(args: Sequence[Any], op: Any) -> list[Any]:
    """The arguments of a call with the parts of each factor in its place."""
    return [parts_of(one) if place in _FACTORS[op] else one for place, one in enumerate(args)]


def in_three_terms(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, channels_last: bool = False) -> Tensor:
    """What a call gives.

    Args:
        op: ATen's overload.
        args: of :func:`with_parts`.
        kwargs: of the call.
        channels_last: have images turned so, and turned back.
    """
    given = list(args)
    left, right = _FACTORS[op]
    if op is aten.convolution.default:
        given[left] = _joined(args[left], (0, 0, 1), 1)
        given[right] = _joined(args[right], (0, 1, 0), 0 if args[_TRANSPOSED] else 1)
        if channels_last:
            given[left], given[right] = (
                given[place].contiguous(memory_format=torch.channels_last) for place in (left, right)
            )
        result: Tensor = tf32_overloads()[op](*given, **kwargs)
        return result.contiguous() if channels_last else result
    given[left] = _joined(args[left], (0, 0, 1), -1)
    given[right] = _joined(args[right], (0, 1, 0), -2)
    return tf32_overloads()[op](*given, **kwargs)  # type: ignore[no-any-return]


def _joined(parts: Parts, order: Sequence[int], dim: int) -> Tensor:
    """Parts behind each other; a matrix that lies column by column goes on to do so."""
    if dim < 0 and parts[0].stride(-2) == 1 != parts[0].stride(-1):
        return _turned(torch.cat([_turned(parts[part]) for part in order], -3 - dim))
    return torch.cat([parts[part] for part in order], dim)


def _turned(x: Tensor) -> Tensor:
    """The transposed matrices, by an overload that lowered graphs have."""
    return x.permute(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)


# ---------------------------------------------------------------- TF32 for one call


@functools.cache
def tf32_overloads() -> Mapping[Any, torch._ops.OpOverload]:
    """ATen's overload -> one of the library ``opsmith`` that allows TF32 for the call. From here on these exist."""
    return {op: _tf32_overload(op) for op in _FACTORS}


@functools.cache
def _library() -> torch.library.Library:
    return torch.library.Library("opsmith", "FRAGMENT")


def _tf32_overload(op: torch._ops.OpOverload) -> torch._ops.OpOverload:
    name, schema = f"tf32_{op._schema.name.partition('::')[2]}", str(op._schema)

    def run(*args: Any, **kwargs: Any) -> Any:
        with _tf32_allowed():
            return op(*args, **kwargs)

    _library().define(name + schema[schema.index("(") :], tags=(torch.Tag.needs_fixed_stride_order,))
    _library().impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"opsmith::{name}", op, lib=_library())
    overload: torch._ops.OpOverload = getattr(torch.ops.opsmith, name).default
    return overload


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
        torch._C._set_cublas_allow_tf32(False)
        matmul.fp32_precision, convolution.fp32_precision = before
