"""Bilinear forms: ``y[b, o] = sum over i and j of x[b, i] w[o, i, j] z[b, j]`` as products of matrices.

ATen multiplies matrices for one o after the other, with a launch or more for each. Here one product makes
``t[b, o, j] = sum over i of x[b, i] w[o, i, j]``, and Inductor one kernel of the product with z and the sum over j. The
sums are the same, in the same order. ``t`` is made in strips of o, so that it stays small.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from opsmith.compile.lowered.nodes import calls, replace_by_calls, tensor_of

#: What torch's bilinear layer asks of ``_trilinear``: where its operands lack dimensions, and which are summed.
BILINEAR = ([1, 3], [0], [1, 2], [2, 3])
#: Of a strip of t, and strips; a form that needs more stays as it is.
MOST_BYTES, MOST_STRIPS = 256 << 20, 16
#: Half precision would round t.
DTYPES = (torch.float32, torch.float64)


def multiply_bilinear_forms(graph: fx.Graph) -> int:
    """Make products of bilinear forms of fixed sizes."""
    fired = 0
    for node in calls(graph, torch.ops.aten._trilinear.default):
        tensors = [tensor_of(one) for one in node.args[:3]]
        strips = _strips(tensors) if node.args[3:7] == BILINEAR else 0
        if 0 < strips <= MOST_STRIPS:
            fired += replace_by_calls(node, functools.partial(_in_strips, strips=strips))
    return fired


def _strips(tensors: Sequence[Tensor | None]) -> int:
    """Into how many strips t is cut; 0 where there is nothing to do or nothing known."""
    x, weight, _ = tensors
    if x is None or weight is None or x.dtype not in DTYPES:
        return 0
    sizes: list[int] = [x.shape[0], *weight.shape]
    if not all(isinstance(size, int) and size for size in sizes):
        return 0
    batch, outputs, left, right = sizes
    strips = -(-batch * outputs * min(left, right) * x.element_size() // MOST_BYTES)
    return min(strips, outputs) if strips <= MOST_STRIPS else strips


def _in_strips(args: Sequence[Any], kwargs: Mapping[str, Any], *, strips: int) -> Tensor:  # noqa: ARG001 - None.
    x, weight, z = args[:3]
    if weight.shape[1] < weight.shape[2]:
        x, z, weight = z, x, weight.permute(0, 2, 1)  # The longer side is summed first.
    outputs = weight.shape[0]
    share = -(-outputs // strips)
    found = []
    for first in range(0, outputs, share):
        strip = weight[first : first + share]
        matrix = strip.permute(1, 0, 2).reshape(strip.shape[1], -1)
        t = torch.mm(x, matrix).view(x.shape[0], strip.shape[0], -1)
        found.append((t * z[:, None]).sum(-1))
    return found[0] if len(found) == 1 else torch.cat(found, 1)
