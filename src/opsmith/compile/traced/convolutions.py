"""Convolutions of traced graphs: their arguments, one by one for each dimension, and their sums over positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx

from opsmith.compile.traced.calls import Call, static_size, tensor
from opsmith.compile.traced.fusion import GraphRecorder

#: The functions by their dimensions of positions.
FORWARD = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class Window(NamedTuple):
    """Positions along a dimension, as a slice has them."""

    start: int
    stop: int
    step: int


@dataclass(frozen=True)
class Convolution:
    """A convolution of a batch, or a transposed one, whose sizes but the batch's are numbers.

    Attributes:
        input: ``[N, C_in, *positions]``.
        weight: ``[C_out, C_in / groups, *taps]``, or ``[C_in, C_out / groups, *taps]`` if transposed.
        bias: ``[C_out]``, or None.
        transposed: whether it is.
        groups: of channels.
        sizes: of the input's positions.
        outputs: sizes of the result's positions.
        taps: sizes of a filter.
        stride: for each dimension of positions, as the next three.
        padding: ditto.
        dilation: ditto.
        output_padding: ditto.
        channels: of the input and of the output.
    """

    input: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    transposed: bool
    groups: int
    sizes: tuple[int, ...]
    outputs: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    channels: tuple[int, int]

    @property
    def rank(self) -> int:
        """Dimensions of positions."""
        return len(self.taps)

    @property
    def input_elements(self) -> int:
        """Of one sample."""
        return self.channels[0] * math.prod(self.sizes)

    @property
    def output_elements(self) -> int:
        """Of one sample."""
        return self.channels[1] * math.prod(self.outputs)

    @property
    def products_per_output(self) -> int:
        """Multiplications for an element of the output, on average."""
        taps = self.channels[0] // self.groups * math.prod(self.taps)
        return taps // math.prod(self.stride) if self.transposed else taps

    def windows(self, axis: int) -> list[Window]:
        """For each tap along a dimension of positions, the positions of the input that it meets."""
        return [self._window(axis, tap * self.dilation[axis] - self.padding[axis]) for tap in range(self.taps[axis])]

    def _window(self, axis: int, offset: int) -> Window:
        """The ``p * stride + offset`` inside the input; transposed, the ``p`` for which that is inside the output."""
        stride = self.stride[axis]
        inner, outer = (self.sizes, self.outputs) if self.transposed else (self.outputs, self.sizes)
        first = max(0, -(offset // stride))
        last = min(inner[axis] - 1, (outer[axis] - 1 - offset) // stride)
        if last < first:
            return Window(0, 0, 1)
        if self.transposed:
            return Window(first, last + 1, 1)
        return Window(first * stride + offset, last * stride + offset + 1, stride)

    def summed(self, record: GraphRecorder, dims: set[int], dtype: torch.dtype) -> Any:
        """The result without its bias, summed over dimensions of ``[N, C_out, *positions]`` that stay with size 1.

        Args:
            record: what is computed.
            dims: at least one.
            dtype: of the sums. In another one than the input's, all positions have to be among ``dims``.
        """
        image, weight, groups = record(self.input), record(self.weight), self.groups
        given = tensor(self.weight)
        if given is not None and given.dtype != dtype:
            weight = weight.to(dtype)
        if 0 in dims:
            image = image.sum(0, keepdim=True, dtype=dtype)
        if 1 in dims:
            weight, groups = self._sum_of_filters(weight), 1
        axes = sorted((dim - 2 for dim in dims if dim >= 2), reverse=True)
        for axis in axes:
            image, weight = self._summed_along(axis, image, weight, dtype)
        left = [axis for axis in range(self.rank) if axis not in axes]
        if not left:
            image, weight = image.unsqueeze(-1), weight.unsqueeze(-1)
        total = self._over(image, weight, groups, left)
        if not left:
            total = total.squeeze(-1)
        for axis in reversed(axes):
            total = total.unsqueeze(axis + 2)
        return total

    def _sum_of_filters(self, weight: Any) -> Any:
        """The filter of the sum of all output channels."""
        if self.transposed:
            return weight.sum(1, keepdim=True)
        inputs, outputs = self.channels
        groups = weight.view(self.groups, outputs // self.groups, inputs // self.groups, *self.taps)
        return groups.sum(1).reshape(1, inputs, *self.taps)

    def _summed_along(self, axis: int, image: Any, weight: Any, dtype: torch.dtype) -> tuple[Any, Any]:
        """One dimension of positions less, and the taps along it as channels.

        Dimensions after ``axis`` are gone already.
        """
        dim, windows = axis + 2, self.windows(axis)
        if len(set(windows)) == 1:
            return self._window_sum(image, axis, windows[0], dtype), weight.sum(dim)
        sums = {window: self._window_sum(image, axis, window, dtype) for window in dict.fromkeys(windows)}
        image = torch.stack([sums[window] for window in windows], 2).flatten(1, 2)
        if self.transposed:
            return image, weight.movedim(dim, 1).flatten(0, 1)
        return image, weight.movedim(dim, 2).flatten(1, 2)

    def _window_sum(self, image: Any, axis: int, window: Window, dtype: torch.dtype) -> Any:
        dim = axis + 2
        if window != (0, self.sizes[axis], 1):
            image = image[(*(slice(None),) * dim, slice(*window))]
        return image.sum(dim, dtype=dtype)

    def _over(self, image: Any, weight: Any, groups: int, axes: list[int]) -> Any:
        """The convolution over the dimensions of positions that are left; over a single position if there are none."""
        stride, padding, dilation, output_padding = (
            [values[axis] for axis in axes] or [neutral]
            for values, neutral in ((self.stride, 1), (self.padding, 0), (self.dilation, 1), (self.output_padding, 0))
        )
        rank = max(1, len(axes))
        if self.transposed:
            return _TRANSPOSED[rank](image, weight, None, stride, padding, output_padding, groups, dilation)
        return FORWARD[rank](image, weight, None, stride, padding, dilation, groups)


def read_convolution(call: Call) -> Convolution | None:
    """The convolution that a call is; None without a batch, and where padding or sizes are no numbers."""
    image, weight, result = tensor(call["input"]), tensor(call["weight"]), tensor(call.node)
    if image is None or weight is None or result is None or image.dim() != weight.dim():
        return None
    rank = weight.dim() - 2
    inner, outer, taps = ([static_size(size) for size in one.shape[1:]] for one in (image, result, weight))
    settings = {
        name: each(call[name], rank, neutral)
        for name, neutral in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))
    }
    if rank not in FORWARD or None in (*inner, *outer, *taps, *settings.values()):
        return None
    return Convolution(
        input=call["input"],
        weight=call["weight"],
        bias=call["bias"],
        transposed=call.name == "conv_transpose",
        groups=call["groups"] or 1,
        sizes=tuple(inner[1:]),  # type: ignore[arg-type]
        outputs=tuple(outer[1:]),  # type: ignore[arg-type]
        taps=tuple(taps[1:]),  # type: ignore[arg-type]
        channels=(inner[0], outer[0]),  # type: ignore[arg-type]
        **settings,  # type: ignore[arg-type]
    )


def each(value: Any, rank: int, neutral: int) -> tuple[int, ...] | None:
    """A setting for each dimension; None where it is no number, as the padding "same"."""
    if value is None:
        return (neutral,) * rank
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not all(type(one) is int for one in values):
        return None
    return values * rank if len(values) == 1 else values
