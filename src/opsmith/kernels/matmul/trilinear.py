"""The sum over some dimensions of products of three tensors, of which each may lack some of the dimensions.

Two batched matrix products, see :mod:`.matmul`: the first two tensors are multiplied and summed over the dimensions
that the third one lacks, and what comes out is multiplied by the third and summed over the rest. A bilinear layer,
``sum over i, j of x1[b, i] w[o, i, j] x2[b, j]``, is thus a product of ``[B, I]`` and ``[I, O J]`` and one of
``[B, O, J]`` and ``[B, J, 1]``.

Suffixes: ``_D`` one entry per dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ..common.elementwise import FLOATS
from ..common.indexing import normalized_dims
from ..common.launch import compute_dtype, require_served
from ..copies.rearrangements import copy_into, fill
from ..reductions.reductions import sum_dim
from .matmul import product


class Spread(NamedTuple):
    """A tensor seen with all dimensions; those that it lacks have size 1."""

    tensor: torch.Tensor
    lacks: frozenset[int]

    def moved(self, dtype: torch.dtype, *groups: Sequence[int]) -> torch.Tensor:
        """Its groups of dimensions, each as one, converted to ``dtype``; what is in none has size 1."""
        named = [d for group in groups for d in group]
        view = self.tensor.permute([*named, *sorted(set(range(self.tensor.ndim)) - set(named))])
        view = view if view.is_contiguous() and view.dtype == dtype else converted_copy(view, dtype)
        return view.view([math.prod(self.tensor.shape[d] for d in group) for group in groups])

    def summed(self, dims: set[int]) -> Spread:
        """The sum over dimensions, which it then lacks, in the type that it is computed in."""
        wide = compute_dtype(self.tensor.dtype)
        return Spread(sum_dim(self.tensor, sorted(dims), True, dtype=wide), self.lacks | dims) if dims else self


def converted_copy(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A contiguous copy of a type."""
    out = torch.empty(tensor.shape, dtype=dtype, device=tensor.device)
    copy_into(out, tensor)
    return out


def contract(a: Spread, b: Spread, sums: set[int]) -> Spread:
    """The sum over ``sums`` of ``a * b``.

    What both have is the batch, or summed over; what one has alone are its rows. A sum over what one has alone is
    taken first. The result is of the type that is computed in: rounded to a half type before it is multiplied again,
    it would lose what cancels.
    """
    ndim = a.tensor.ndim
    a, b = a.summed(sums & b.lacks - a.lacks), b.summed(sums & a.lacks - b.lacks)
    both = [d for d in range(ndim) if d not in a.lacks | b.lacks]
    batch, inner = [d for d in both if d not in sums], [d for d in both if d in sums]
    of_a = [d for d in range(ndim) if d in b.lacks - a.lacks]
    of_b = [d for d in range(ndim) if d in a.lacks - b.lacks]
    neither = sorted(set(range(ndim)) - {*batch, *of_a, *of_b})
    common = torch.promote_types(a.tensor.dtype, b.tensor.dtype)
    factors = a.moved(common, batch, of_a, inner), b.moved(common, batch, inner, of_b)
    result = product(*factors, out_dtype=compute_dtype(common))
    order = [*batch, *of_a, *of_b, *neither]
    sizes_D = [max(a.tensor.shape[d], b.tensor.shape[d]) if d not in neither else 1 for d in order]
    unpacked = result.view(sizes_D).permute([order.index(d) for d in range(ndim)])
    return Spread(unpacked, frozenset(neither))


def trilinear(
    i1: torch.Tensor,
    i2: torch.Tensor,
    i3: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,  # noqa: ARG001 - How eager cuts its work.
) -> torch.Tensor:
    """The sum over ``sumdim`` of ``i1 * i2 * i3``, each with dimensions inserted at its ``expand``.

    Raises:
        ValueError: different numbers of dimensions.
        IndexError: a dimension out of range.
        TypeError: several types.
        NotImplementedError: tensors that are not served.
    """
    tensors = (i1, i2, i3)
    require_served(*tensors, dtypes=FLOATS)
    if i1.dtype != i2.dtype or i2.dtype != i3.dtype:
        raise TypeError(f"the tensors are of {i1.dtype}, {i2.dtype} and {i3.dtype}")
    ndim = i1.ndim + len(expand1)
    spread = []
    for tensor, expanded in zip(tensors, (expand1, expand2, expand3), strict=True):
        lacks = normalized_dims(expanded, ndim) if expanded else set()
        if tensor.ndim + len(lacks) != ndim:
            raise ValueError(f"{tensor.ndim} dimensions and {len(lacks)} more are not {ndim}")
        for d in sorted(lacks):
            tensor = tensor.unsqueeze(d)  # noqa: PLW2901 - the same elements
        spread.append(Spread(tensor, frozenset(lacks)))
    sums = normalized_dims(sumdim, ndim) if sumdim else set()
    if any(not tensor.numel() for tensor in tensors):
        shape = torch.broadcast_shapes(*(each.tensor.shape for each in spread))
        out = torch.empty([size for d, size in enumerate(shape) if d not in sums], dtype=i1.dtype, device=i1.device)
        fill(out, 0)
        return out
    first = contract(spread[0], spread[1], sums & spread[2].lacks)
    result = contract(first, spread[2], sums).tensor
    kept = [size for d, size in enumerate(result.shape) if d not in sums]
    is_done = result.is_contiguous() and result.dtype == i1.dtype
    return (result if is_done else converted_copy(result, i1.dtype)).view(kept)
