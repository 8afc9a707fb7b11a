"""Histograms over bins of any widths, in one dimension or several: histogram, histogramdd.

An element finds its bin by bisection of the edges, which the caches hold, and is counted with an atomic operation: in
integers or, with weights, in their type, whose sums then depend on the order. ``(itemsize + itemsize of the weight)
* numel`` bytes. The last edge belongs to the last bin; NaN and what lies outside is not counted.

Suffixes: ``_D`` one entry per dimension of the bins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.launch import INTERPRETED, INTERPRETED_TILE, launch, loop_bound, pdl_prologue, require_served
from ..copies.rearrangements import copied, copy_into, fill
from ..copies.sequences import linspace
from ..pointwise.arithmetic import div, sub
from ..reductions.extrema import aminmax
from ..reductions.reductions import sum_default

_SERVED = (torch.float32, torch.float64)
BLOCK = INTERPRETED_TILE if INTERPRETED else 512


@triton.jit
def bin_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    edges_D: tl.tuple,
    lengths_D: tl.tuple,
    x_strides: tl.tuple,
    numel: tl.tensor,
    steps: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Add the weight, or 1, of each row of ``x[n, d]`` to its bin; ``lengths_D`` are the numbers of edges."""
    pdl_prologue()
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    counts = i < numel
    place = tl.zeros([BLOCK], tl.int64)
    for d in tl.static_range(len(lengths_D)):
        x = tl.load(x_ptr + i * x_strides[0] + d * x_strides[1], mask=i < numel, other=0)
        low = tl.zeros([BLOCK], tl.int32)
        high = low + lengths_D[d]
        for _ in range(steps):
            middle = (low + high) // 2
            asked = low < high
            below = tl.load(edges_D[d] + middle, mask=asked, other=0) <= x
            low, high = tl.where(asked & below, middle + 1, low), tl.where(asked & (below == 0), middle, high)
        first = tl.load(edges_D[d] + tl.arange(0, 1))
        last = tl.load(edges_D[d] + (lengths_D[d] - 1) + tl.arange(0, 1))
        counts = counts & (x >= first) & (x <= last)
        place = place * (lengths_D[d] - 1) + tl.minimum(low - 1, lengths_D[d] - 2)
    if weight_ptr is None:
        added = tl.full([BLOCK], 1, tl.int32)
    else:
        added = tl.load(weight_ptr + i, mask=counts, other=0)
    tl.atomic_add(out_ptr + place, added, mask=counts, sem="relaxed")


# ---------------------------------------------------------------- the host side


def _histogram(
    x: torch.Tensor, edges: Sequence[torch.Tensor], weight: torch.Tensor | None, *, density: bool
) -> torch.Tensor:
    """Count the rows of ``x[.., D]``; ``edges`` are D vectors.

    Raises:
        TypeError: edges or weights of another type than the elements.
        ValueError: edges that enclose no bin, or weights of another shape than the rows.
    """
    require_served(x, weight, *edges, dtypes=_SERVED)
    if any(tensor.dtype != x.dtype for tensor in (*edges, *([] if weight is None else [weight]))):
        raise TypeError(f"edges and weights of elements of {x.dtype} have that type, too")
    if len(edges) != x.shape[-1] or any(each.ndim != 1 or each.numel() < 2 for each in edges):
        raise ValueError(f"there are {x.shape[-1]} dimensions, each with a vector of at least two edges")
    if weight is not None and weight.shape != x.shape[:-1]:
        raise ValueError(f"weights of shape {list(weight.shape)} do not fit {list(x.shape[:-1])} rows")
    rows = (x if x.is_contiguous() else copied(x)).view(-1, x.shape[-1])
    weights = weight if weight is None or weight.is_contiguous() else copied(weight)
    lengths = tuple(each.numel() for each in edges)
    out = torch.empty([length - 1 for length in lengths], dtype=x.dtype, device=x.device)
    counts = out if weights is not None else torch.empty_like(out, dtype=torch.int32)
    fill(counts, 0)
    if rows.numel():
        launch(
            bin_kernel,
            (triton.cdiv(rows.shape[0], BLOCK),),
            x.device,
            counts,
            rows,
            weights,
            tuple(each if each.is_contiguous() else copied(each) for each in edges),
            lengths,
            rows.stride(),
            rows.shape[0],
            loop_bound(max(lengths).bit_length()),
            BLOCK=BLOCK,
        )
    if counts is not out:
        copy_into(out, counts)
    return _density(out, edges) if density else out


def _density(counts: torch.Tensor, edges: Sequence[torch.Tensor]) -> torch.Tensor:
    """Shares of the total, for each unit of a bin's volume."""
    result = div(counts, sum_default(counts))
    for d, each in enumerate(edges):
        bins = each.numel() - 1
        widths = sub(each.narrow(0, 1, bins), each.narrow(0, 0, bins))
        result = div(result, widths.view([bins if other == d else 1 for other in range(counts.ndim)]))
    return result


def _even_edges(x: torch.Tensor, bins: Sequence[int], ends: Sequence[float] | None) -> list[torch.Tensor]:
    """Edges of bins of equal widths between ``ends``, or between the least and the greatest elements.

    Raises:
        ValueError: no bins, or ends that enclose none.
    """
    require_served(x, dtypes=_SERVED)
    D = x.shape[-1]
    if len(bins) != D or any(count <= 0 for count in bins):
        raise ValueError(f"there are {D} dimensions, each with at least one bin, not {list(bins)}")
    if ends is not None:
        pairs = [(float(ends[2 * d]), float(ends[2 * d + 1])) for d in range(len(ends) // 2)]
    elif x.numel():
        rows = (x if x.is_contiguous() else copied(x)).view(-1, D)
        pairs = list(zip(*(end.tolist() for end in aminmax(rows, dim=0)), strict=True))
    else:
        pairs = [(0.0, 1.0)] * D
    if len(pairs) != D or any(not (math.isfinite(a) and math.isfinite(b) and a <= b) for a, b in pairs):
        raise ValueError(f"the bins of {D} dimensions have no ends {pairs}")
    edges = []
    for count, (low, high) in zip(bins, pairs, strict=True):
        low, high = (low, high) if low < high else (low - 0.5, high + 0.5)  # noqa: PLW2901 - no width
        edges.append(linspace(low, high, count + 1, dtype=x.dtype, device=x.device))
    return edges


def histogram_bin_count(
    self: torch.Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,  # noqa: A002
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """How many elements, or how much of their weight, lie in each of ``bins`` equal parts of a range; and the edges.

    Without a range it is that of the elements, for which the host waits. ``density``: shares for a unit of width.

    Raises:
        TypeError: weights of another type than the elements.
        ValueError: no bins, a range of nothing, or weights of another shape.
    """
    x = self.unsqueeze(-1)
    edges = _even_edges(x, [bins], range)
    return _histogram(x, edges, weight, density=density), edges[0]


def histogram_bins(
    self: torch.Tensor, bins: torch.Tensor, *, weight: torch.Tensor | None = None, density: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """As :func:`histogram_bin_count`, between the edges ``bins``, which rise.

    Raises:
        TypeError: edges or weights of another type than the elements.
        ValueError: edges that enclose no bin, or weights of another shape.
    """
    return _histogram(self.unsqueeze(-1), [bins], weight, density=density), copied(bins)


def histogramdd_edges(
    self: torch.Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,  # noqa: A002
    weight: torch.Tensor | None = None,  # noqa: ARG001 - Has no say in it.
    density: bool = False,  # noqa: ARG001 - As above.
) -> list[torch.Tensor]:
    """The edges of each dimension of ``self[.., D]``; ``range`` holds two ends for each.

    Raises:
        ValueError: no bins, or ranges of nothing.
    """
    return _even_edges(self, bins, range)


def histogramdd_bin_counts(
    self: torch.Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,  # noqa: A002
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> torch.Tensor:
    """How many rows of ``self[.., D]``, or how much of their weight, lie in each bin: a tensor of D dimensions.

    Raises:
        TypeError: weights of another type than the elements.
        ValueError: no bins, ranges of nothing, or weights of another shape.
    """
    return _histogram(self, _even_edges(self, bins, range), weight, density=density)


def histogramdd_bins(
    self: torch.Tensor, bins: Sequence[torch.Tensor], *, weight: torch.Tensor | None = None, density: bool = False
) -> torch.Tensor:
    """As :func:`histogramdd_bin_counts`, between the edges ``bins``.

    Raises:
        TypeError: edges or weights of another type than the elements.
        ValueError: edges that enclose no bin, or weights of another shape.
    """
    return _histogram(self, bins, weight, density=density)
