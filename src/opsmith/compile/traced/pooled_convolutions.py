"""Convolutions whose results are averaged over windows, as convolutions that do both.

Averaging over windows is a convolution with equal weights, and two convolutions in a row are one. It computes as many
positions less as a window has:

- A convolution of one tap mixes the channels of each position by itself, so the inputs can be pooled instead.
  DenseNet's transitions are written the expensive way.
- In general, along one dimension, results ``p * s + t`` of tap t and position p that are averaged over r positions
  from ``q * r`` on come from the inputs ``q * r * s + a * s + t`` for a < r: a convolution with stride ``r s`` and the
  sum of r shifted filters, divided by r.
- A transposed convolution with stride s, averaged over windows of a multiple ``m s``, is a plain one with stride m:
  input ``q m + j`` meets the sum of those taps t for which ``s j + t - padding`` lies in the window.

Where that is less work by a simple model (see ``_pays``) it is done. Scales and shifts in between that are the same at
all positions follow.

Accuracy: each result is the same sum of products of inputs and weights, and rounding is bounded as for
:mod:`~opsmith.compile.traced.reduced_products`. In half precision pooled inputs and summed filters would be rounded
where now the convolution's result is, which may be smaller than its terms; so there it stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx

from opsmith.compile.traced.calls import Call, read, tensor
from opsmith.compile.traced.convolutions import FORWARD, Convolution, each, read_convolution
from opsmith.compile.traced.fusion import GraphRecorder, Match, fuse
from opsmith.compile.traced.linear_paths import Step, linear_path


def pool_in_convolutions(graph: fx.Graph) -> int:
    """Average while convolving."""
    return fuse(graph, _find)


def _find(node: fx.Node) -> Match | None:
    pool = read(node, "avg_pool")
    like = None if pool is None else tensor(pool["input"])
    if pool is None or like is None or like.dtype not in {torch.float32, torch.float64}:
        return None
    if torch.is_autocast_enabled(like.device.type) or not _only_averages(pool):
        return None
    positions = range(2, like.dim())
    names = ("conv", "conv_transpose")
    found = linear_path(pool["input"], like, names, products_along=positions, sums_along=positions)
    convolution = None if found is None else read_convolution(found[1])
    if found is None or convolution is None:
        return None
    steps, layer = found
    windows = _read_windows(pool, convolution)
    if windows is None or any(one is None or one.dtype != like.dtype for one in map(tensor, _operands(convolution))):
        return None
    inside = {layer.node, *(step.call.node for step in steps)}
    if _of_one_tap(convolution):
        if not _pooling_first_pays(convolution, windows):
            return None
        return Match(inside, lambda graph: _pooled_first(graph, pool, layer, steps))
    merged = _merge(convolution, windows)
    if merged is None or not _pays(convolution, windows, merged):
        return None
    return Match(inside, lambda graph: _merged(graph, convolution, windows, merged, steps))


def _operands(convolution: Convolution) -> Sequence[fx.Node]:
    bias = () if convolution.bias is None else (convolution.bias,)
    return convolution.input, convolution.weight, *bias


def _only_averages(pool: Call) -> bool:
    """Whether every result is the mean of a whole window: then what is added to all positions stays what it is."""
    padding = pool["padding"] if isinstance(pool["padding"], (tuple, list)) else (pool["padding"],)
    return not any(padding) and not pool["ceil_mode"] and pool["divisor_override"] is None


@dataclass(frozen=True)
class _Windows:
    """What is averaged: sizes of windows, distances between them, and how many there are, for each dimension."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    counts: tuple[int, ...]


def _read_windows(pool: Call, convolution: Convolution) -> _Windows | None:
    rank = convolution.rank
    sizes = each(pool["kernel_size"], rank, 1)
    strides = sizes if pool["stride"] in (None, (), []) else each(pool["stride"], rank, 1)
    if sizes is None or strides is None:
        return None
    lengths = zip(convolution.outputs, sizes, strides, strict=True)
    return _Windows(sizes, strides, tuple((length - size) // stride + 1 for length, size, stride in lengths))


# ---------------------------------------------------------------- one tap


def _of_one_tap(convolution: Convolution) -> bool:
    plain = {*convolution.taps, *convolution.stride} == {1} and set(convolution.padding) == {0}
    return plain and not convolution.transposed


def _pooling_first_pays(convolution: Convolution, windows: _Windows) -> bool:
    """Whether at most half of the positions are left, and the input has not many more channels than the result."""
    few = 2 * math.prod(windows.counts) <= math.prod(convolution.sizes)
    return few and convolution.input_elements <= 2 * convolution.output_elements


def _pooled_first(graph: fx.Graph, pool: Call, layer: Call, steps: Sequence[Step]) -> fx.Node:
    record, pooling, convolve = GraphRecorder(graph), pool.node.target, layer.node.target
    assert callable(pooling)
    assert callable(convolve)
    pooled = pooling(
        record(layer["input"]), **{name: value for name, value in pool.arguments.items() if name != "input"}
    )
    weights = {name: record(layer[name]) for name in ("weight", "bias")}
    settings = {name: value for name, value in layer.arguments.items() if name not in {"input", *weights}}
    return _after(record, convolve(pooled, **weights, **settings), steps)


def _after(record: GraphRecorder, result: Any, steps: Sequence[Step]) -> fx.Node:
    """The steps, on what is averaged already."""
    for step in reversed(steps):
        other, flipped = record(step.other), step.call["other"] is step.input
        match step.call.name:
            case "add":
                result = result + other
            case "sub":
                result = other - result if flipped else result - other
            case "mul":
                result = result * other
            case "div":
                result = result / other
    node: fx.Node = result.node
    return node


# ---------------------------------------------------------------- more taps


@dataclass(frozen=True)
class _Axis:
    """The convolution that does both, along one dimension.

    Attributes:
        taps: for each of its taps, the taps of the filter that are added up in it, as ``(first, last + 1)`` ranges.
        stride: its stride.
        before: zeros in front of the input.
        after: zeros behind it; negative where the last inputs are not needed.
    """

    taps: tuple[tuple[int, int], ...]
    stride: int
    before: int
    after: int


def _merge(convolution: Convolution, windows: _Windows) -> list[_Axis] | None:
    make = _merge_transposed if convolution.transposed else _merge_plain
    if set(convolution.dilation) != {1}:
        return None
    axes = [make(convolution, windows, axis) for axis in range(convolution.rank)]
    return None if None in axes else [axis for axis in axes if axis is not None]


def _merge_plain(convolution: Convolution, windows: _Windows, axis: int) -> _Axis | None:
    stride, taps, window = convolution.stride[axis], convolution.taps[axis], windows.sizes[axis]
    padding, length = convolution.padding[axis], convolution.sizes[axis]
    reach = (window - 1) * stride + taps
    if stride != 1:
        return None  # The taps that are added up would not be neighbours.
    ranges = tuple((max(0, place - window + 1), min(taps, place + 1)) for place in range(reach))
    last = (windows.counts[axis] - 1) * windows.strides[axis] + reach - padding
    return _Axis(ranges, windows.strides[axis], padding, last - length)


def _merge_transposed(convolution: Convolution, windows: _Windows, axis: int) -> _Axis | None:
    stride, taps, window = convolution.stride[axis], convolution.taps[axis], windows.sizes[axis]
    padding, length = convolution.padding[axis], convolution.sizes[axis]
    if windows.strides[axis] % stride:
        return None
    step = windows.strides[axis] // stride
    first, last = -((taps - 1 - padding) // stride), (window - 1 + padding) // stride
    ranges = tuple(
        (max(0, padding - stride * place), min(taps, window + padding - stride * place))
        for place in range(first, last + 1)
    )
    return _Axis(ranges, step, -first, (windows.counts[axis] - 1) * step + last + 1 - length)


def _pays(convolution: Convolution, windows: _Windows, merged: Sequence[_Axis]) -> bool:
    """Whether it takes at most two fifths of the time, if a device moves an element while it multiplies 25 times.

    That leaves room for faster algorithms that libraries have for filters of three by three only.
    """
    channels = convolution.channels[0] // convolution.groups
    pooled = convolution.channels[1] * math.prod(windows.counts)
    products = pooled * channels * math.prod(len(axis.taps) for axis in merged)
    before = 2 * convolution.output_elements + convolution.output_elements * convolution.products_per_output / 25
    return 5 * (2 * pooled + products / 25) <= 2 * before


def _merged(
    graph: fx.Graph, convolution: Convolution, windows: _Windows, merged: Sequence[_Axis], steps: Sequence[Step]
) -> fx.Node:
    record = GraphRecorder(graph)
    image, weight = record(convolution.input), record(convolution.weight)
    if convolution.transposed:
        weight = _as_plain(convolution, weight)
    for dim, axis in enumerate(merged, start=2):
        weight = torch.stack([weight.narrow(dim, first, last - first).sum(dim) for first, last in axis.taps], dim)
    padding = [axis.before for axis in merged]
    if not _reaches_as_far(convolution, windows, merged):
        image = F.pad(image, [edge for axis in reversed(merged) for edge in (axis.before, axis.after)])
        padding = [0] * convolution.rank
    weight, bias = weight / math.prod(windows.sizes), record(convolution.bias)
    strides = [axis.stride for axis in merged]
    return _after(
        record, FORWARD[convolution.rank](image, weight, bias, strides, padding, 1, convolution.groups), steps
    )


def _as_plain(convolution: Convolution, weight: Any) -> Any:
    """A transposed convolution's weight with the output's channels first."""
    groups, (inputs, outputs) = convolution.groups, convolution.channels
    if groups == 1:
        return weight.transpose(0, 1)
    apart = weight.view(groups, inputs // groups, outputs // groups, *convolution.taps)
    return apart.transpose(1, 2).reshape(outputs, inputs // groups, *convolution.taps)


def _reaches_as_far(convolution: Convolution, windows: _Windows, merged: Sequence[_Axis]) -> bool:
    """Whether as many zeros behind the input as in front of it make as many results."""
    sizes = zip(merged, convolution.sizes, windows.counts, strict=True)
    return all(
        axis.before >= 0 and (size + 2 * axis.before - len(axis.taps)) // axis.stride + 1 == count
        for axis, size, count in sizes
    )
