"""Kernels with the mistakes that tired engineers and language models make fail on variants; right ones pass on all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from tests.evaluation_calls import judge

from opsmith.aten.schemas import aten_schemas
from opsmith.calls.live import rebuild
from opsmith.calls.recording import CallRecorder
from opsmith.core.case import CallRecord
from opsmith.core.op import OpSchema
from opsmith.suites.variants import place_variants, value_variants

CPU = torch.device("cpu")
SEEDS = (1, 2, 3)
aten = torch.ops.aten


class Mutant(NamedTuple):
    """A wrong kernel, a right one that computes in another way, and a call of their op.

    Attributes:
        op: the overload.
        args: of a call.
        wrong: takes what the op takes.
        honest: likewise.
        seen: one of these variants tells them apart under every seed.
        dtypes: of the floating tensors.
    """

    op: Any
    args: tuple[Any, ...]
    wrong: Callable[..., Any]
    honest: Callable[..., Any]
    seen: frozenset[str]
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float16)


def randn(*shape: int) -> torch.Tensor:
    """Seeded, so that a test that fails does so again."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def labels(text: str) -> frozenset[str]:
    """Several labels."""
    return frozenset(text.split())


def wide(op: Callable[..., Any]) -> Callable[..., Any]:
    """The op in float64, rounded once."""

    def kernel(*args: Any) -> Any:
        dtype = next(arg.dtype for arg in args if isinstance(arg, torch.Tensor) and arg.is_floating_point())
        raised = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
        result = op(*raised)
        narrow = [r.to(dtype) if r.is_floating_point() else r for r in (result if type(result) is tuple else (result,))]
        return tuple(narrow) if type(result) is tuple else narrow[0]

    return kernel


# ---------------------------------------------------------------- reductions, orders and scans


def running_maximum(x: torch.Tensor, dim: int, *, replaces: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """One element after another; NaN is whatever ``replaces`` takes it for."""
    best, place = x.select(dim, 0).clone(), torch.zeros(x.select(dim, 0).shape, dtype=torch.int64)
    for index in range(1, x.shape[dim]):
        here = x.select(dim, index)
        taken = replaces(here, best)
        best, place = torch.where(taken, here, best), torch.where(taken, index, place)
    return best, place


def in_order(x: torch.Tensor, dim: int, order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What sort returns."""
    return x.gather(dim, order), order


def numbers_before_nan(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A running maximum that is NaN at a NaN and forgets it behind it."""
    running = torch.where(x.isnan(), -math.inf, x).cummax(dim)
    return torch.where(x.isnan(), x, running.values), running.indices


def chunked_logsumexp(x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """An online sum, two elements of a row at a time, that minds infinities."""
    highest = x.amax(dims, keepdim=True)
    shift = torch.where(highest.isinf(), 0, highest).float()
    parts = [(part.float() - shift).exp().sum(dims, keepdim=True) for part in x.split(2, dims[0])]
    return (torch.stack(parts).sum(0).log() + shift).squeeze(dims[0]).to(x.dtype)


def inclusive_scan(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Hillis and Steele's: neighbours of growing distance are added."""
    total, step = x.double(), 1
    while step < x.shape[dim]:
        behind = total.narrow(dim, 0, x.shape[dim] - step)
        kept, moved = total.narrow(dim, 0, step), total.narrow(dim, step, x.shape[dim] - step)
        total, step = torch.cat([kept, moved + behind], dim), step * 2
    return total.to(x.dtype)


def product_with_triangle(x: torch.Tensor, dim: int) -> torch.Tensor:
    """A running sum as a product: infinities times zeros are NaN."""
    triangle = torch.ones(x.shape[dim], x.shape[dim]).triu()
    return (x.float().movedim(dim, -1) @ triangle).movedim(-1, dim).to(x.dtype)


ORDERED = labels("special nan")


def flushed(x: torch.Tensor) -> torch.Tensor:
    """Without denormals."""
    return torch.where(x.abs() < torch.finfo(x.dtype).tiny, 0, x)


def _finite(x: torch.Tensor) -> torch.Tensor:
    """With the largest number for an infinity."""
    limits = torch.finfo(x.dtype)
    return x.clamp(limits.min, limits.max)


def _silu_gradient(grad: torch.Tensor, x: torch.Tensor, sigmoid: torch.Tensor) -> torch.Tensor:
    """From the sigmoid of ``x`` in float32."""
    return (grad.float() * sigmoid * (1 + x.float() * (1 - sigmoid))).to(grad.dtype)


REDUCTIONS = {
    "mse_loss_makes_infinities_finite": Mutant(
        aten.mse_loss.default,
        (randn(9, 33), randn(9, 33), 0),
        lambda x, y, _: _finite((x - y).square()),
        lambda x, y, _: (x - y) * (x - y),
        labels("infinite"),
        (torch.float32,),
    ),
    "log_softmax_backward_sums_without_nan": Mutant(
        aten._log_softmax_backward_data.default,
        (randn(9, 33), randn(9, 33).log_softmax(1), 1, torch.float32),
        lambda g, s, dim, dtype: (g.double() - s.double().exp() * g.double().nansum(dim, True)).to(dtype),
        lambda g, s, dim, dtype: (g.double() - s.double().exp() * g.double().sum(dim, True)).to(dtype),
        labels("nan"),
        (torch.float32,),
    ),
    "max_skips_nan": Mutant(
        aten.max.dim,
        (randn(9, 33), 1),
        lambda x, dim: running_maximum(x, dim, replaces=torch.gt),
        lambda x, dim: running_maximum(x, dim, replaces=lambda new, old: (new > old) | (new.isnan() & ~old.isnan())),
        ORDERED,
    ),
    "max_takes_the_last_tie": Mutant(
        aten.max.dim,
        (randn(9, 33), 1),
        lambda x, dim: (x.amax(dim), x.shape[dim] - 1 - x.flip(dim).argmax(dim)),
        lambda x, dim: (x.amax(dim), x.argmax(dim)),
        labels("ties"),
    ),
    "argmin_of_absent_nan": Mutant(
        aten.argmin.default,
        (randn(9, 33), 1),
        lambda x, dim: torch.where(x.isnan(), math.inf, x).argmin(dim),
        lambda x, dim: (-x).argmax(dim),
        ORDERED,
    ),
    "amax_starts_at_a_large_number": Mutant(
        aten.amax.default,
        (randn(9, 33), [1]),
        lambda x, dims: x.amax(dims).clamp_min(-60000.0),
        lambda x, dims: x.sort(dims[0]).values.select(dims[0], -1),
        labels("infinite"),
    ),
    "amax_starts_at_zero_where_it_is_padded": Mutant(
        aten.amax.default,
        (randn(9, 33), [1]),
        lambda x, dims: x.amax(dims).clamp_min(-1e4),
        lambda x, dims: -(-x).amin(dims),
        labels("infinite"),
    ),
    "sort_puts_nan_first": Mutant(
        aten.sort.default,
        (randn(9, 33), 1),
        lambda x, dim: in_order(x, dim, x.nan_to_num(nan=-1e4).argsort(dim)),
        lambda x, dim: in_order(x, dim, x.argsort(dim=dim, stable=True)),
        ORDERED,
    ),
    "topk_drops_nan": Mutant(
        aten.topk.default,
        (randn(9, 33), 5),
        lambda x, k: torch.where(x.isnan(), -math.inf, x).topk(k),
        lambda x, k: tuple(part[..., :k] for part in x.sort(-1, descending=True)),
        ORDERED,
    ),
    "cummax_forgets_nan": Mutant(
        aten.cummax.default,
        (randn(9, 33), 1),
        numbers_before_nan,
        lambda x, dim: tuple(x.double().cummax(dim)),
        ORDERED,
        (torch.float32,),
    ),
    "any_of_nan_is_false": Mutant(
        aten.any.dim,
        (torch.zeros(9, 33), 1),
        lambda x, dim: (x.abs() > 0).any(dim),
        lambda x, dim: (x != 0).sum(dim) > 0,
        labels("nan special"),
    ),
    "logsumexp_of_minus_infinities": Mutant(
        aten.logsumexp.default,
        (randn(12, 33), [1]),
        lambda x, dims: (x - x.amax(dims, True)).exp().sum(dims).log() + x.amax(dims),
        chunked_logsumexp,
        labels("infinite"),
        (torch.float32,),
    ),
    "softmax_of_minus_infinities_is_zero": Mutant(
        aten._softmax.default,
        (randn(12, 33), 1, False),
        lambda x, dim, _: x.double().softmax(dim).nan_to_num(0.0).to(x.dtype),
        lambda x, dim, _: x.double().softmax(dim).to(x.dtype),
        labels("infinite nan"),
    ),
    "sum_skips_nan": Mutant(
        aten.sum.dim_IntList, (randn(9, 33), [1]), lambda x, dims: x.nansum(dims), wide(aten.sum.dim_IntList), ORDERED
    ),
    "cumsum_by_a_product": Mutant(
        aten.cumsum.default, (randn(12, 33), 1), product_with_triangle, inclusive_scan, labels("infinite nan")
    ),
    "mm_skips_nan": Mutant(
        aten.mm.default,
        (randn(8, 6), randn(6, 8)),
        lambda a, b: (a.unsqueeze(-1).float() * b.float()).nansum(1).to(a.dtype),
        lambda a, b: (a.unsqueeze(-1).double() * b.double()).sum(1).to(a.dtype),
        labels("nan"),
    ),
    "soft_margin_loss_skips_nan": Mutant(
        aten.soft_margin_loss.default,
        (randn(8, 6), randn(8, 6).sign()),
        lambda x, y: (-x.double() * y).exp().log1p().nanmean().to(x.dtype),
        lambda x, y: (-x.double() * y).exp().log1p().mean().to(x.dtype),
        labels("nan"),
        (torch.float32,),
    ),
    "addmm_scales_what_it_ignores": Mutant(
        aten.addmm.default,
        (randn(5, 7), randn(5, 6), randn(6, 7)),
        lambda x, a, b, beta=1: (beta * x.float() + a.float() @ b.float()).to(x.dtype),
        lambda x, a, b, beta=1: (a.double() @ b.double() + (beta * x.double() if beta else 0)).to(x.dtype),
        labels("ignored"),
    ),
    "tril_by_a_mask_of_factors": Mutant(
        aten.tril.default,
        (randn(9, 33),),
        lambda x: x * torch.ones(9, 33, dtype=x.dtype).tril(),
        lambda x: torch.where(torch.ones(9, 33).tril() == 1, x, 0),
        labels("special nan infinite"),
    ),
    "index_select_by_a_product": Mutant(
        aten.index_select.default,
        (randn(9, 33), 0, torch.tensor([3, 0, 8])),
        lambda x, _, index: torch.nn.functional.one_hot(index, 9).to(x.dtype) @ x,
        lambda x, _, index: torch.stack([x[place] for place in index.tolist()]),
        labels("special nan infinite"),
    ),
    "searchsorted_at_equal_ones": Mutant(
        aten.searchsorted.Tensor,
        (torch.tensor([-2.0, -1.0, 0.0, 0.0, 1.0, 2.0]), randn(5, 7)),
        lambda ordered, x, right=False: (ordered <= x.unsqueeze(-1)).sum(-1),
        lambda ordered, x, right=False: (~(ordered > x.unsqueeze(-1) if right else ordered >= x.unsqueeze(-1))).sum(-1),
        labels("boundaries"),
    ),
}

WHOLE = {
    "max_of_integers_in_float32": Mutant(
        aten.max.dim,
        (torch.arange(297).view(9, 33), 1),
        lambda x, dim: (x.float().amax(dim).long(), x.float().argmax(dim)),
        lambda x, dim: running_maximum(x, dim, replaces=torch.gt),
        labels("huge"),
    ),
    "min_of_integers_from_a_limit": Mutant(
        aten.amin.default,
        (torch.arange(297).view(9, 33), [1]),
        lambda x, dims: x.amin(dims).clamp_min(-(1 << 31)),
        lambda x, dims: -(-1 - x).amax(dims) - 1,
        labels("huge"),
    ),
    "sorts_integers_as_int32": Mutant(
        aten.sort.default,
        (torch.arange(297).view(9, 33), 1),
        lambda x, dim: in_order(x, dim, x.int().argsort(dim)),
        lambda x, dim: tuple(x.sort(dim=dim, stable=True)),
        labels("huge"),
    ),
}

# ---------------------------------------------------------------- bends and bands

BENT = labels("boundaries")
BENDS = {
    "hardshrink_keeps_its_bound": Mutant(
        aten.hardshrink.default,
        (randn(64), 0.3),
        lambda x, lambd: torch.where(x.abs() >= lambd, x, 0),
        lambda x, lambd: x.masked_fill((x >= -lambd) & (x <= lambd), 0),
        BENT,
    ),
    "threshold_keeps_its_bound": Mutant(
        aten.threshold.default,
        (randn(64), 0.7, 20.0),
        lambda x, bound, value: torch.where(x >= bound, x, value),
        lambda x, bound, value: torch.where(x <= bound, value, x),
        BENT,
    ),
    "threshold_backward_lets_its_bound_pass": Mutant(
        aten.threshold_backward.default,
        (randn(64), randn(64), 0.0),
        lambda grad, x, bound: torch.where(x >= bound, grad, 0),
        lambda grad, x, bound: grad.masked_fill(x <= bound, 0),
        BENT,
    ),
    "hardtanh_backward_lets_its_ends_pass": Mutant(
        aten.hardtanh_backward.default,
        (randn(64), randn(64), -1.0, 1.0),
        lambda grad, x, low, high: torch.where((x >= low) & (x <= high), grad, 0),
        lambda grad, x, low, high: torch.where((x > low) & (x < high), grad, 0),
        BENT,
    ),
    "hardtanh_backward_makes_infinities_finite": Mutant(
        aten.hardtanh_backward.default,
        (randn(9, 33), randn(9, 33), -1.0, 1.0),
        lambda grad, x, low, high: torch.where((x <= low) | (x >= high), 0, _finite(grad)),
        lambda grad, x, low, high: grad.masked_fill((x <= low) | (x >= high), 0),
        labels("infinite"),
    ),
    "silu_backward_by_a_quotient_of_powers": Mutant(
        aten.silu_backward.default,
        (randn(64), randn(64)),
        lambda grad, x: _silu_gradient(grad, x, x.float().exp() / (1 + x.float().exp())),
        lambda grad, x: _silu_gradient(grad, x, 1 / (1 + (-x.float()).exp())),
        labels("boundaries"),
        (torch.float32, torch.bfloat16),
    ),
    "round_half_up": Mutant(
        aten.round.default,
        (randn(64),),
        lambda x: (x.float() + 0.5).floor().to(x.dtype),
        lambda x: x.double().round().to(x.dtype),
        labels("boundaries"),
    ),
    "softplus_without_its_threshold": Mutant(
        aten.softplus.default,
        (randn(64),),
        lambda x: x.float().exp().log1p().to(x.dtype),
        lambda x: torch.where(x > 20, x.float(), x.float().exp().log1p()).to(x.dtype),
        labels("boundaries sweep large"),
        (torch.float32,),
    ),
    "sign_of_zero": Mutant(
        aten.sign.default,
        (randn(64),),
        lambda x: torch.where(x >= 0, 1, -1).to(x.dtype),
        lambda x: ((x > 0).int() - (x < 0).int()).to(x.dtype),
        BENT,
    ),
    "compares_with_a_margin": Mutant(
        aten.eq.Tensor,
        (randn(64), randn(64)),
        lambda x, y: (x - y).abs() < 1e-6,
        lambda x, y: (x <= y) & (x >= y),
        labels("boundaries denormals sweep tiny"),
    ),
    "hardtanh_without_denormals": Mutant(
        aten.hardtanh.default,
        (randn(64),),
        lambda x: flushed(x.clamp(-1, 1)),
        lambda x: torch.where(x > 1, 1, torch.where(x < -1, -1, x)).to(x.dtype),
        labels("denormals"),
        (torch.float32,),
    ),
    "gradient_of_softshrink_without_denormals": Mutant(
        aten.softshrink_backward.default,
        (randn(64), randn(64), 0.5),
        lambda grad, x, bound: flushed(torch.where(x.abs() > bound, grad, 0)),
        lambda grad, x, bound: torch.where((x >= -bound) & (x <= bound), 0, grad),
        labels("denormals"),
        (torch.float32,),
    ),
    "logaddexp_without_log1p": Mutant(
        aten.logaddexp.default,
        (randn(7), randn(7)),
        lambda x, y: torch.maximum(x, y) + torch.log(1 + torch.exp(-(x - y).abs())),
        lambda x, y: torch.where(x == y, x + math.log(2), torch.maximum(x, y) + torch.log1p(torch.exp(-(x - y).abs()))),
        labels("boundaries"),
        (torch.float32,),
    ),
    "cross_of_finite_numbers": Mutant(
        aten.linalg_cross.default,
        (randn(5, 3), randn(5, 3)),
        lambda x, y: torch.linalg.cross(x, y).nan_to_num(math.nan, math.nan, math.nan),
        lambda x, y: torch.stack([x[:, i] * y[:, j] - x[:, j] * y[:, i] for i, j in ((1, 2), (2, 0), (0, 1))], 1),
        labels("infinite"),
    ),
    "binary_cross_entropy_without_its_clamp": Mutant(
        aten.binary_cross_entropy.default,
        (torch.rand(64), torch.rand(64)),
        lambda p, t: -(t * (p + 1e-8).log() + (1 - t) * (1 - p + 1e-8).log()).mean(),
        lambda p, t: -(t * p.log().clamp_min(-100) + (1 - t) * (1 - p).log().clamp_min(-100)).mean(),
        BENT,
        (torch.float32,),
    ),
}


def with_a_band(low: float, high: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """A sigmoid that is off by a twentieth between two numbers."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        right = x.double().sigmoid()
        return torch.where((x > low) & (x < high), right * 1.05, right).to(x.dtype)

    return kernel


BANDS = {
    f"sigmoid_wrong_from_{low}_to_{high}": Mutant(
        aten.sigmoid.default, (randn(64),), with_a_band(low, high), wide(aten.sigmoid.default), labels("sweep")
    )
    for low, high in ((1.6, 1.65), (-0.0312, -0.0302), (40.0, 42.0), (-7.5, -7.3))
}
BANDS |= {
    "hardswish_wrong_in_a_band": Mutant(
        aten.hardswish.default,
        (randn(64),),
        lambda x: torch.where((x > 0.5) & (x < 0.52), x, wide(aten.hardswish.default)(x)),
        lambda x: (x.float() * (x.float() / 6 + 0.5).clamp(0, 1)).to(x.dtype),
        labels("sweep"),
    ),
    "exp_wrong_near_its_end": Mutant(
        aten.exp.default,
        (randn(64),),
        lambda x: torch.where(x.float() > 10.5, x.double().exp() * 1.05, x.double().exp()).to(x.dtype),
        wide(aten.exp.default),
        labels("sweep"),
    ),
    "sqrt_of_large_numbers": Mutant(
        aten.sqrt.default,
        (torch.rand(64),),
        lambda x: x.float().clamp_max(60000.0).sqrt().to(x.dtype),
        wide(aten.sqrt.default),
        labels("sweep"),
    ),
    "tanh_by_exponentials_of_both_signs": Mutant(
        aten.tanh.default,
        (randn(64),),
        lambda x: ((x.float().exp() - (-x.float()).exp()) / (x.float().exp() + (-x.float()).exp())).to(x.dtype),
        wide(aten.tanh.default),
        labels("sweep large huge special boundaries"),
    ),
    "hypot_squares_in_half_precision": Mutant(
        aten.hypot.default,
        (randn(64), randn(64)),
        lambda x, y: (x * x + y * y).sqrt(),
        wide(aten.hypot.default),
        labels("sweep large tiny mixed special"),
        (torch.float16,),
    ),
}

# ---------------------------------------------------------------- places


def added_once(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """What comes twice to one place is added once."""
    result = x.clone()
    result.index_copy_(dim, index, x.index_select(dim, index) + source)
    return result


def one_after_another(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """In float64, from the last to the first."""
    result = x.double()
    for number in reversed(range(len(index))):
        result.select(dim, int(index[number])).add_(source.select(dim, number))
    return result.to(x.dtype)


def sum_of_the_last_run(grad: torch.Tensor, index: torch.Tensor, rows: int, *_: Any) -> torch.Tensor:
    """A row's gradients are taken to follow each other."""
    result, before = grad.new_zeros(rows, grad.shape[1]), -1
    for gradient, place in zip(grad, index.tolist(), strict=True):
        result[place] = result[place] + gradient if place == before else gradient
        before = place
    return result


PLACES = {
    "index_add_stores": Mutant(
        aten.index_add.default,
        (randn(9, 5), 0, torch.tensor([4, 0, 7, 2]), randn(4, 5)),
        added_once,
        one_after_another,
        labels("equal repeated edges"),
    ),
    "index_from_the_end_is_clamped": Mutant(
        aten.index.Tensor,
        (randn(9, 5), [torch.tensor([4, 0, 7, 2])]),
        lambda x, indices: x[indices[0].clamp_min(0)],
        lambda x, indices: torch.stack([x[place] for place in indices[0].tolist()]),
        labels("negative"),
    ),
    "take_wraps_by_rows": Mutant(
        aten.take.default,
        (randn(9, 5), torch.tensor([[4, 0], [44, 2]])),
        lambda x, index: x.flatten()[index.abs() % x.numel()],
        lambda x, index: x.flatten()[index % x.numel()],
        labels("negative"),
    ),
    "gather_never_reaches_the_last_place": Mutant(
        aten.gather.default,
        (randn(9, 50), 1, torch.zeros(9, 3, dtype=torch.int64)),
        lambda x, dim, index: x.gather(dim, index.clamp_max(x.shape[dim] - 2)),
        lambda x, dim, index: torch.stack([row[places] for row, places in zip(x, index, strict=True)]),
        labels("edges"),
    ),
    "embedding_backward_of_sorted_indices": Mutant(
        aten.embedding_dense_backward.default,
        (randn(6, 5), torch.tensor([0, 1, 1, 2, 5, 8]), 9, -1, False),
        sum_of_the_last_run,
        lambda grad, index, rows, *_: torch.nn.functional.one_hot(index, rows).to(grad.dtype).T @ grad,
        labels("edges repeated descending"),
    ),
}

MUTANTS = REDUCTIONS | WHOLE | BENDS | BANDS | PLACES


def verdicts(mutant: Mutant, record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, bool, bool]]:
    """For each variant that eager answers whether the wrong kernel passes on it, and the honest one."""
    for vary in (value_variants, place_variants):
        for label, variant in vary(record, schema, seed):
            live = rebuild(variant, CPU)
            answers = [kernel(*live.args, **live.kwargs) for kernel in (mutant.wrong, mutant.honest)]
            wrong, honest = [judge(mutant.op, live.args, answer, **live.kwargs).passed for answer in answers]
            yield label, wrong, honest


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_fail_and_right_kernels_pass(name: str) -> None:
    """Whatever the seed and the dtype; and the mutant fails on the variants that are made for its mistake."""
    mutant = MUTANTS[name]
    for dtype in mutant.dtypes if name not in WHOLE else (torch.int64,):
        args = [a.to(dtype) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in mutant.args]
        with CallRecorder(lambda *_: True) as recorder:
            mutant.op(*args)
        record = recorder.calls[-1].record
        assert record is not None
        for seed in SEEDS:
            found = list(verdicts(mutant, record, aten_schemas()[record.op], seed))
            assert [] == [(label, dtype, seed) for label, _, honest in found if not honest]
            assert mutant.seen & {label for label, wrong, _ in found if not wrong}, (dtype, seed)
