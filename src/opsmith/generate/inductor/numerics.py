"""Where torch's compiler trades digits for speed, or is wrong, and what it is given instead.

Each entry was found by the judge: the compiler's own kernel left the tolerances on the calls that are named here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch._inductor.codegen.cpp import CppVecOverrides
from torch._inductor.decomposition import select_decomp_table

_aten = torch.ops.aten

#: Overload -> its numbers -> values that eager treats apart, each of which gets a kernel of its own. A power of 0.5 is
#: a square root, which has no value below zero; as an argument it would be a power, which has one at minus infinity.
SPECIAL_NUMBERS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "aten.pow.Tensor_Scalar": {"exponent": (0.5, -0.5)},
}


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The compiler's table of ops that it computes from others, with ours in it."""
    return {
        **select_decomp_table(),
        _aten.native_group_norm.default: _group_norm,
        _aten.pow.Tensor_Scalar: _power,
        _aten.var.correction: _variance,
    }


def _power(self: torch.Tensor, exponent: float) -> Any:
    """With an exponent of -0.5, for which eager has a function of its own; the compiler sees to 0.5 itself."""
    return torch.rsqrt(self) if isinstance(exponent, float) and exponent == -0.5 else NotImplemented


def _group_norm(  # noqa: PLR0917 - the overload's arguments
    input: torch.Tensor,  # noqa: A002 - its name in the schema
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    N: int,  # noqa: N803 - its name in the schema
    C: int,  # noqa: N803 - as N
    HxW: int,  # noqa: N803 - as N
    group: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Subtracts the mean first: on a CPU the compiler folds it into the bias, which cancels on data far from 0."""
    grouped = input.reshape(N, group, C // group, HxW)
    variance, mean = torch.var_mean(grouped, dim=[2, 3], correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    shape = [1, C, *[1] * (input.ndim - 2)]
    result = ((grouped - mean) * rstd).reshape(input.shape)
    if weight is not None:
        result = result * weight.reshape(shape)
    if bias is not None:
        result = result + bias.reshape(shape)
    return result, mean.reshape(N, group), rstd.reshape(N, group)


def _variance(
    self: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    """With a fractional correction, which the compiler rounds to an integer."""
    if correction is None or isinstance(correction, (int, torch.SymInt)) or self.is_complex():
        return NotImplemented
    dims = list(dim) if dim else list(range(self.ndim))
    centred = self - self.mean(dims, keepdim=True)
    count = math.prod(self.shape[axis] for axis in dims)
    freedom = torch.full([], count - correction, dtype=self.dtype, device=self.device).clamp(min=0)
    return (centred * centred).sum(dims, keepdim=keepdim) / freedom


@contextlib.contextmanager
def exact_functions() -> Iterator[None]:
    """No vectorised ``exp(x) - 1`` for ``expm1``, which has no digits left at small arguments."""
    with mock.patch.object(CppVecOverrides, "expm1", staticmethod(lambda x: f"{x}.expm1()")):
        yield
