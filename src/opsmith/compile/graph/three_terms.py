"""Short products of float32 by libraries' TF32, with three terms for each.

``x = high + low``, two TF32 numbers that hold 22 of its 24 bits, so that ``x * w`` is
``high * high' + high * low' + low * high'`` but for some 21 bits (Ootomo and Yokota, 2022). Laid side by side along
what is summed over, ``[high, high, low]`` times ``[high', low', high']`` is one product with three times the terms,
which the library makes on tensor cores and adds up in float32.

Tensor cores cut off what their accumulators cannot hold, towards zero, where float32 rounds to the nearest: of 4,096
terms of one sign 1.7e-4 was lost on an H200, forty times what cuBLAS loses without them. So this is for sums of at most
:data:`LONGEST` terms; longer ones are left to kernels that begin a sum anew every few terms.

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

from opsmith.compile.graph.opaque import define_like

aten = torch.ops.aten

#: Bits that TF32 keeps of float32.
_KEPT = -0x2000
#: Of a number of which nothing is left behind its high part.
_TINY = 2.0**-30

#: Terms of a sum: 96 steps of eight products in three, each of which loses half a bit of 24 on average.
LONGEST = 256

#: Overload -> the positions of the factors.
_FACTORS: Mapping[Any, tuple[int, int]] = {
    aten.mm.default: (0, 1),
    aten.addmm.default: (1, 2),
    aten.bmm.default: (0, 1),
    aten.baddbmm.default: (1, 2),
}


def takes_three_terms(op: Any, args: Sequence[Any]) -> bool:
    """Whether a call can be made this way: a product with a short sum."""
    return op in _FACTORS and bool(args[_FACTORS[op][0]].shape[-1] <= LONGEST)


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


def in_three_terms(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a call gives.

    Args:
        op: ATen's overload.
        args: of :func:`with_parts`.
        kwargs: of the call.
    """
    given = list(args)
    left, right = _FACTORS[op]
    given[left] = _joined(args[left], _LEFT, -1)
    given[right] = _joined(args[right], _RIGHT, -2)
    return tf32_overloads()[op](*given, **kwargs)


#: Parts of either factor, in the order of the terms.
_LEFT, _RIGHT = ("high", "high", "low"), ("high", "low", "high")


def _joined(parts: Parts, order: Sequence[str], dim: int) -> Tensor:
    """Parts behind each other along the last dimension but one or the last; columns stay columns in memory."""
    found = [getattr(parts, part) for part in order]
    if parts.whole.stride(-2) == 1 != parts.whole.stride(-1):
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
    def run(*args: Any, **kwargs: Any) -> Any:
        with _tf32_allowed():
            return op(*args, **kwargs)

    return define_like(f"tf32_{op._schema.name.partition('::')[2]}", op, run, op)


@contextlib.contextmanager
def _tf32_allowed() -> Iterator[None]:
    """For products, whatever this process has set; other threads see it for as long."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    # Torch keeps the older setting of products beside the newer one, and asks that they agree.
    torch._C._set_cublas_allow_tf32(True)
    try:
        yield
    finally:
        torch._C._set_cublas_allow_tf32(before == "tf32")
        matmul.fp32_precision = before
