"""Kernels that are right on the calls they were recorded with, and wrong on a variant of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import pytest
import torch

from opsmith.aten.schemas import aten_schemas, overload
from opsmith.calls.live import rebuild
from opsmith.calls.observer import Observer
from opsmith.calls.outcomes import HeldOutcome
from opsmith.calls.recording import CallRecorder
from opsmith.core.case import CallRecord
from opsmith.core.verdict import Status
from opsmith.evaluation.comparisons.correctness import CaseUnderJudgement
from opsmith.evaluation.criteria.rules import rule_for
from opsmith.suites.variants import probes

CPU = torch.device("cpu")
ATEN = torch.ops.aten
Function = Callable[..., Any]


class Wrong(NamedTuple):
    """A wrong kernel, an honest one in its style, and the call that both are right on."""

    op: str
    args: tuple[Any, ...]
    wrong: Function
    honest: Function
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never changed


def recorded(op: str, *args: Any, **kwargs: Any) -> CallRecord:
    """The serialized call."""
    with CallRecorder(lambda *_: True) as recorder, torch.no_grad():
        overload(op)(*args, **kwargs)
    record: CallRecord | None = recorder.calls[0].record
    assert record is not None
    return record


def outcome(record: CallRecord, function: Function) -> HeldOutcome:
    """What a kernel does with the recorded arguments."""
    live, observer = rebuild(record, CPU), Observer()
    observer.keep([observer.describe(function(*live.args, **live.kwargs), live, record.storages)])
    return observer.held(0)


def status(record: CallRecord, function: Function) -> Status:
    """The verdict on a kernel; one that raises is wrong."""
    schema, reference = aten_schemas()[record.op], outcome(record, overload(record.op))
    case = CaseUnderJudgement(
        record,
        schema,
        rule_for(schema),
        lambda: [reference],
        device=CPU,
        tolerance=None,
        run_again=lambda: repeat(reference),
    )
    try:
        found = outcome(record, function)
    except (RuntimeError, IndexError, ValueError):
        return Status.ERROR
    return case.judge([found], tolerance="strict", layout="dense").status


def variants(record: CallRecord, *, seed: int, large: int) -> Iterator[CallRecord]:
    """The variants that eager answers."""
    for _, variant in probes([record], aten_schemas()[record.op], seed, 24, large=large):
        try:
            outcome(variant, overload(record.op))
        except (RuntimeError, IndexError, ValueError):
            continue
        yield variant


# ---------------------------------------------------------------- the kernels


def memory_of(tensor: torch.Tensor, elements: int) -> torch.Tensor:
    """So many elements from a tensor's address on, whatever its strides say."""
    room = tensor.untyped_storage().nbytes() // tensor.itemsize - tensor.storage_offset()
    return torch.as_strided(tensor, (min(elements, room),), (1,), tensor.storage_offset())


def neg_one_too_many(x: torch.Tensor) -> torch.Tensor:
    """``mask = i <= n``."""
    if not x.is_contiguous():
        return x.neg_()
    memory_of(x, x.numel() + 1).neg_()
    return x


def neg_in_order(x: torch.Tensor) -> torch.Tensor:
    """In the order of the memory."""
    memory_of(x, x.numel()).neg_()
    return x


def exp_in_order(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """Into the memory of the result in its order."""
    out.resize_(x.shape) if out.shape != x.shape else out
    memory_of(out, out.numel()).copy_(x.exp().flatten())
    return out


def exp_that_fits(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """Into a result that has to fit."""
    if out.shape == x.shape:
        out.copy_(x.exp())
    return out


def exp_when_empty(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """Resizes what is empty only."""
    if not out.numel():
        out.resize_(x.shape)
    out.flatten()[: x.numel()].copy_(x.exp().flatten()[: out.numel()])
    return out


def exp_as_given(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """Writes numbers of its input's dtype, whatever the result's is."""
    if out.shape != x.shape:
        out.resize_(x.shape)
    if out.dtype is x.dtype:
        return out.copy_(x.exp())
    return out.copy_(x.exp().view(torch.int32).to(out.dtype))


def grad_of_embedding(grad: torch.Tensor, indices: torch.Tensor, *arguments: Any) -> torch.Tensor:
    """By columns of the one-hot matrix; ``arguments`` are rows, padding_idx and scale_grad_by_freq."""
    rows, padding, scale = arguments
    one_hot = torch.nn.functional.one_hot(indices.flatten(), rows).float()
    weights = one_hot / one_hot.sum(0).clamp(min=1) if scale else one_hot
    total = weights.t() @ grad.reshape(-1, grad.shape[-1])
    if 0 <= padding < rows:
        total[padding] = 0
    return total


def low_wins(x: torch.Tensor, low: float | None = None, high: float | None = None) -> torch.Tensor:
    """The lower bound last."""
    x = x if high is None else torch.where(x > high, high, x)
    return x if low is None else torch.where(x < low, low, x)


def high_wins(x: torch.Tensor, low: float | None = None, high: float | None = None) -> torch.Tensor:
    """The upper bound last, as eager has it."""
    x = x if low is None else torch.where(x < low, low, x)
    return x if high is None else torch.where(x > high, high, x)


def finite_fill(x: torch.Tensor, mask: torch.Tensor, value: float) -> torch.Tensor:
    """With the largest number in place of an infinite one."""
    return x.masked_fill(mask, max(min(value, 3e38), -3e38))


def mean_of_some(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Zero where there is nothing to take the mean of."""
    return ATEN.mean.dim(x, *args, **kwargs).nan_to_num(0)


def flat_argmax(x: torch.Tensor, dim: int | None = None, *keepdim: Any) -> torch.Tensor:
    """Without the kept dimensions of all of them."""
    return x.argmax() if dim is None else x.argmax(dim, *keepdim)


def without(function: Any, *names: str) -> Function:
    """An op that ignores some of its keyword arguments."""
    return lambda *args, **kwargs: function(*args, **{k: v for k, v in kwargs.items() if k not in names})


def up_to(count: int, function: Function) -> Function:
    """An elementwise op that leaves zeros behind so many elements."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs).contiguous()
        result.view(-1)[count:] = 0
        return result

    return answer


def cumsum_of_blocks(x: torch.Tensor, dim: int, *, dtype: Any = None) -> torch.Tensor:
    """Scans of at most 65,536 elements: the next block starts anew."""
    parts = [part.cumsum(dim, dtype=dtype) for part in x.split(1 << 16, dim)] if x.dim() else [x.cumsum(dim)]
    return torch.cat(parts, dim) if x.dim() else parts[0]


def count(x: torch.Tensor, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False) -> torch.Tensor:
    """How many boundaries are below each number, with ``right`` also those that are equal; NaN is above all."""
    wanted = x.unsqueeze(-1)
    below = (boundaries <= wanted) if right else (boundaries < wanted)
    below |= wanted.isnan() & (~boundaries.isnan() | right)
    return below.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def count_in_bfloat16(x: torch.Tensor, boundaries: torch.Tensor, **flags: bool) -> torch.Tensor:
    """A count of more than 256 is rounded."""
    found = count(x, boundaries, **flags)
    return found.to(torch.bfloat16).to(found.dtype)


X = torch.arange(-11.0, 12.0) / 4
INDICES = torch.tensor([0, 2, 1, 1, 2, 2])
CASES = {
    "one_too_many": Wrong("neg_.default", (X.clone(),), neg_one_too_many, torch.neg_),
    "in_place_in_order": Wrong("neg_.default", (X[:20].view(4, 5).clone(),), neg_in_order, torch.neg_),
    "out_in_order": Wrong(
        "exp.out", (X[:20].view(4, 5),), exp_in_order, torch.ops.aten.exp.out, {"out": torch.zeros(4, 5)}
    ),
    "out_that_fits": Wrong("exp.out", (X,), exp_that_fits, torch.ops.aten.exp.out, {"out": torch.zeros(23)}),
    "out_when_empty": Wrong("exp.out", (X,), exp_when_empty, torch.ops.aten.exp.out, {"out": torch.zeros(23)}),
    "out_as_given": Wrong("exp.out", (X,), exp_as_given, torch.ops.aten.exp.out, {"out": torch.zeros(23)}),
    "scale_grad_by_freq": Wrong(
        "embedding_dense_backward.default",
        (torch.randn(6, 4), INDICES, 3, -1, False),
        lambda *args: grad_of_embedding(*args[:4], False),
        grad_of_embedding,
    ),
    "padding_idx": Wrong(
        "embedding_dense_backward.default",
        (torch.randn(6, 4), INDICES, 3, -1, False),
        lambda *args: grad_of_embedding(*args[:3], -1, args[4]),
        grad_of_embedding,
    ),
    "crossed_bounds": Wrong("clamp.default", (X, -0.5, 0.5), low_wins, high_wins),
    "posinf": Wrong(
        "nan_to_num.default", (X,), lambda x, nan=None, _=None, low=None: x.nan_to_num(nan, None, low), torch.nan_to_num
    ),
    "keepdim_of_all": Wrong("argmax.default", (X[:20].view(4, 5),), flat_argmax, torch.ops.aten.argmax.default),
    "infinite_fill": Wrong("masked_fill.Scalar", (X, X > 0, 2.0), finite_fill, torch.masked_fill),
    "long_boundaries": Wrong("bucketize.Tensor", (X, torch.linspace(-1, 1, 5)), count_in_bfloat16, count),
    "empty_mean": Wrong("mean.dim", (X[:20].view(4, 5), [1]), mean_of_some, torch.ops.aten.mean.dim),
    "beta_of_addmv": Wrong(
        "addmv.default",
        (torch.randn(3), torch.randn(3, 4), torch.randn(4)),
        without(ATEN.addmv.default, "beta"),
        ATEN.addmv.default,
    ),
    "alpha_of_addr": Wrong(
        "addr.default",
        (torch.randn(3, 4), torch.randn(3), torch.randn(4)),
        without(ATEN.addr.default, "alpha"),
        ATEN.addr.default,
    ),
}
LARGE = {
    "twenty_one_bits": Wrong("exp.default", (X[:20].view(4, 5),), up_to(1 << 21, torch.exp), torch.exp),
    "one_grid": Wrong("neg.default", (X[:20].view(4, 5),), up_to(65_535, torch.neg), torch.neg),
    "one_block_scan": Wrong("cumsum.default", (X[:20].view(4, 5), 1), cumsum_of_blocks, ATEN.cumsum.default),
}


def judged(case: Wrong, *, large: int = 0) -> None:
    """The wrong kernel passes the recorded call and fails on a variant with each seed; the honest one passes all."""
    record = recorded(case.op, *[a.clone() if isinstance(a, torch.Tensor) else a for a in case.args], **case.kwargs)
    assert [Status.PASSED] * 2 == [status(record, function) for function in (case.wrong, case.honest)]
    for seed in range(3):
        asked = list(variants(record, seed=seed, large=large))
        assert {Status.PASSED} == {status(variant, case.honest) for variant in asked}
        assert {Status.PASSED} != {status(variant, case.wrong) for variant in asked}


@pytest.mark.parametrize("name", CASES)
def test_variants_expose_kernels_that_are_right_on_plain_calls(name: str) -> None:
    """Each is a mistake that people and models make, and passed before its variant was asked."""
    judged(CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_variants_expose_kernels_that_are_right_on_small_calls(name: str) -> None:
    """What counts in too few bits, or in one grid or block, is right below its limit."""
    judged(LARGE[name], large=3)
