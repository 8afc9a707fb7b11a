"""Ops that say where a value lies: several answers are right where values are equal.

The values have to be eager's exactly. An index has to be in range, to point at the value that is
reported with it, and not to be given twice where a permutation or selection is promised. ``max``, ``min``,
``argmax`` and ``argmin`` promise the first of equal elements. Poolings report the first, and ``cummax`` and ``cummin``
the last, on every device, though torch does not promise it: gradients follow the index.
``stable=True`` promises eager's indices, so there only equality is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opsmith.evaluation.comparisons import exact
from opsmith.evaluation.criteria.judged_call import Finding, JudgedCall, Results
from opsmith.evaluation.criteria.results import PASSED, bits_of, position, wrong
from opsmith.evaluation.criteria.rules import ComparisonRule


def compare(call: JudgedCall, rule: ComparisonRule, reference: Results, candidate: Results) -> Finding:
    """Compare values and indices that are not simply equal to eager's."""
    arguments = call.bound()
    data = next(iter(arguments.values())).detach().cpu()
    expected = [result for result in reference if isinstance(result, torch.Tensor)]
    got = [result for result in candidate if isinstance(result, torch.Tensor)]
    judge = _JUDGES.get(rule.stem, _compare_picked)
    return judge(data, arguments, expected, got)


Leaves = list[torch.Tensor]


def _compare_ordered(data: torch.Tensor, arguments: dict[str, Any], expected: Leaves, got: Leaves) -> Finding:
    """sort, argsort, topk: each index once, and gathering it gives the values in eager's order."""
    if arguments.get("stable"):
        return _all_equal(expected, got)
    data, dim = _lines(data, arguments.get("dim", -1))
    indices = got[-1].reshape(expected[-1].shape or (1,)).movedim(dim, -1)
    wanted = _gather(data, expected[-1].reshape(got[-1].shape or (1,)).movedim(dim, -1))
    broken = _out_of_range(indices, data.shape[-1])
    if broken is not None:
        return broken
    ordered = indices.sort(-1).values
    if bool((ordered[..., 1:] == ordered[..., :-1]).any()):
        return wrong("an index is given twice where each may appear once")
    picked = _gather(data, indices)
    if len(got) == 2:
        reported = got[0].reshape(picked.movedim(-1, dim).shape).movedim(dim, -1)
        if bool(exact.different(reported, picked).any()):
            return wrong("the values are not those that the indices point at")
    if arguments.get("sorted") is False:  # topk without an order promises a set.
        wanted, picked = wanted.sort(-1).values, picked.sort(-1).values
    return _renamed(exact.compare(wanted, picked), "the indices point at other values than eager's: ")


def _compare_picked(data: torch.Tensor, arguments: dict[str, Any], expected: Leaves, got: Leaves) -> Finding:
    """One index for each line of the input, pointing at the value that eager points at."""
    dim = arguments.get("dim")
    data, dim = (data.flatten(), 0) if dim is None else _lines(data, dim)
    shape = (*data.shape[:-1], 1)
    broken = _out_of_range(got[-1], data.shape[-1])
    if broken is not None:
        return broken
    wanted, picked = _gather(data, expected[-1].reshape(shape)), _gather(data, got[-1].reshape(shape))
    if len(got) == 2:
        values = exact.compare(expected[0], got[0])
        if not values.passed:
            return _renamed(values, "values: ")
    return _renamed(exact.compare(wanted, picked), "the indices point at other values than eager's: ")


def _compare_first(data: torch.Tensor, arguments: dict[str, Any], expected: Leaves, got: Leaves) -> Finding:
    """As :func:`_compare_picked`; of equal numbers torch promises the first one, of several NaNs none."""
    finding = _compare_picked(data, arguments, expected, got)
    if not finding.passed or torch.equal(expected[-1], got[-1]):
        return finding
    dim = arguments.get("dim")
    data = data.flatten() if dim is None else _lines(data, dim)[0]
    picked = _gather(data, got[-1].reshape(*data.shape[:-1], 1)).reshape(got[-1].shape)
    later = (got[-1] != expected[-1]) & (picked == picked)  # noqa: PLR0124 - NaN is no number, of whatever dtype
    return wrong("an index points at a later one of equal elements") if bool(later.any()) else finding


def _as_eager(expected: Leaves, got: Leaves) -> Finding:
    """Of a value and its place that are right otherwise: of equal numbers eager's, of several NaNs any."""
    elsewhere = (got[1] != expected[1]) & ~expected[0].isnan()
    return wrong("an index points at another one of equal elements than eager's") if bool(elsewhere.any()) else PASSED


def _compare_mode(data: torch.Tensor, arguments: dict[str, Any], expected: Leaves, got: Leaves) -> Finding:
    """Any of the most frequent values is a mode: it has to be as frequent as eager's."""
    data, _ = _lines(data, arguments["dim"])
    shape = (*data.shape[:-1], 1)
    broken = _out_of_range(got[1], data.shape[-1])
    if broken is not None:
        return broken
    picked = _gather(data, got[1].reshape(shape))
    if bool(exact.different(got[0].reshape(shape), picked).any()):
        return wrong("the values are not those that the indices point at")
    counts = [(~exact.different(data, side[0].reshape(shape).expand(data.shape))).sum(-1) for side in (expected, got)]
    if not torch.equal(counts[0], counts[1]):
        return wrong("a value is reported as the mode that is less frequent than eager's")
    return PASSED


def _compare_running(data: torch.Tensor, arguments: dict[str, Any], expected: Leaves, got: Leaves) -> Finding:
    """cummax, cummin: the index lies at or before its own position."""
    values = exact.compare(expected[0], got[0])
    if not values.passed:
        return _renamed(values, "values: ")
    data, dim = _lines(data, arguments["dim"])
    indices = got[1].reshape(data.movedim(-1, dim).shape).movedim(dim, -1)
    broken = _out_of_range(indices, data.shape[-1])
    if broken is not None:
        return broken
    if bool((indices > torch.arange(data.shape[-1])).any()):
        return wrong("an index points past its own position")
    reported = got[0].reshape(data.movedim(-1, dim).shape).movedim(dim, -1)
    right = _renamed(exact.compare(reported, _gather(data, indices)), "the indices point at other values: ")
    return _as_eager(expected, got) if right.passed else right


def _pooled(spatial: int) -> Callable[[torch.Tensor, dict[str, Any], Leaves, Leaves], Finding]:
    """Pooling over ``spatial`` dimensions: indices are flat within the input's plane."""

    def judge(data: torch.Tensor, _: dict[str, Any], expected: Leaves, got: Leaves) -> Finding:
        values = exact.compare(expected[0], got[0])
        if not values.passed:
            return _renamed(values, "values: ")
        planes = data.flatten(-spatial)
        broken = _out_of_range(got[1], planes.shape[-1])
        if broken is not None:
            return broken
        picked = _gather(planes, got[1].flatten(-spatial)).reshape(got[0].shape)
        right = _renamed(exact.compare(got[0], picked), "the indices point at other values: ")
        return _as_eager(expected, got) if right.passed else right

    return judge


_JUDGES: dict[str, Callable[[torch.Tensor, dict[str, Any], Leaves, Leaves], Finding]] = {
    "sort": _compare_ordered,
    "argsort": _compare_ordered,
    "topk": _compare_ordered,
    "max": _compare_first,
    "min": _compare_first,
    "argmax": _compare_first,
    "argmin": _compare_first,
    "mode": _compare_mode,
    "cummax": _compare_running,
    "cummin": _compare_running,
    "max_pool2d_with_indices": _pooled(2),
    "max_pool3d_with_indices": _pooled(3),
    "adaptive_max_pool2d": _pooled(2),
    "adaptive_max_pool3d": _pooled(3),
    "fractional_max_pool2d": _pooled(2),
    "fractional_max_pool3d": _pooled(3),
}


def _lines(data: torch.Tensor, dim: int) -> tuple[torch.Tensor, int]:
    """The input with the dimension that is searched moved to the end, and where it was."""
    data = data.reshape(1) if data.dim() == 0 else data
    dim = dim % data.dim()
    return data.movedim(dim, -1), dim


def _gather(lines: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return bits_of(lines).gather(-1, indices).view(lines.dtype)


def _out_of_range(indices: torch.Tensor, size: int) -> Finding | None:
    outside = (indices < 0) | (indices >= size)
    if not bool(outside.any()):
        return None
    first = int(outside.flatten().to(torch.uint8).argmax())
    return wrong(
        f"index {indices.flatten()[first].item()} at {position(first, indices.shape)} is outside of [0, {size})"
    )


def _all_equal(expected: Leaves, got: Leaves) -> Finding:
    for one, other in zip(expected, got, strict=True):
        finding = exact.compare(one, other)
        if not finding.passed:
            return _renamed(finding, "stable=True promises eager's order: ")
    return PASSED


def _renamed(finding: Finding, what: str) -> Finding:
    """``finding`` with what was compared said in front; a pass stays as it is."""
    return finding if finding.passed else wrong(what + finding.detail, finding.figures)
