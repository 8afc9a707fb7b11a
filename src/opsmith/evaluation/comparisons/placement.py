"""Ops that put values where indices say: where several name one place, any of their values is right.

Overlapping windows of a pool may share their largest element, whose place is then named twice. On a GPU the order in
which values are written is nobody's to choose.
"""

from __future__ import annotations

import torch

from opsmith.evaluation.comparisons import exact
from opsmith.evaluation.criteria.judged_call import Finding, JudgedCall, Results
from opsmith.evaluation.criteria.results import bits_of


def compare(call: JudgedCall, reference: Results, candidate: Results) -> Finding:
    """Compare an unpooled result that is not simply equal to eager's."""
    arguments = call.bound()
    expected, got = reference[0], candidate[0]
    assert isinstance(expected, torch.Tensor)
    assert isinstance(got, torch.Tensor)
    dims = len(arguments["output_size"])
    values, indices = (_planes(arguments[name].detach().cpu(), dims) for name in ("self", "indices"))
    planes = _planes(got.cpu(), dims)
    is_there = ~exact.different(values, bits_of(planes).gather(1, indices).view(planes.dtype))
    is_right = torch.zeros_like(planes, dtype=torch.uint8).scatter_reduce_(1, indices, is_there.byte(), "amax")
    got, expected = got.cpu(), expected.cpu()
    wanted = torch.where(is_right.bool().view(got.shape), bits_of(got), bits_of(expected))
    return exact.compare(wanted.view(got.dtype), got)


def _planes(tensor: torch.Tensor, dims: int) -> torch.Tensor:
    """Each plane or volume, which an index counts through, as a row."""
    return tensor.reshape(-1, tensor.shape[-dims:].numel())
