"""The float64 oracle excuses accuracy and honest rounding, never a lower precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.evaluation_calls import call_of, judge
from torch._decomp import get_decompositions
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from opsmith.evaluation.comparisons.compare import compare
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.criteria.tolerance import tolerance_for
from opsmith.evaluation.oracle import attention as attention_oracle
from opsmith.evaluation.oracle import philox
from opsmith.evaluation.oracle.analytic_bounds import rounding_of_sum
from opsmith.evaluation.oracle.attention import gradients
from opsmith.evaluation.oracle.error_bound import TRUST, TRUST_WIDE
from opsmith.evaluation.oracle.float64 import Oracle
from opsmith.evaluation.oracle.perturbation import TRIALS, perturbed
from opsmith.tasks import registry

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(7)


def _cancelling(rows: int, terms: int) -> torch.Tensor:
    """Rows whose sum is about 1e-6 of the sum of magnitudes."""
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(rows, terms // 2, generator=generator) * 1000
    mixed = torch.cat([half, -half], -1)[:, torch.randperm(terms, generator=generator)]
    return mixed + torch.randn(rows, terms, generator=generator) * 1e-3


def _tf32(x: torch.Tensor) -> torch.Tensor:
    """``x`` with the 10 mantissa bits of TF32."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def _tree_sum(x: torch.Tensor, step_dtype: torch.dtype = torch.float32) -> torch.Tensor:
    while x.shape[-1] > 1:
        x = (x[..., : x.shape[-1] // 2] + x[..., x.shape[-1] // 2 :]).to(step_dtype).float()
    return x[..., 0]


def test_a_sum_in_another_order_passes_on_data_that_cancel() -> None:
    """The plain tolerance alone would refuse every honest order but eager's."""
    x = _cancelling(8, 4096)
    finding = judge(aten.sum.dim_IntList, (x, [1]), _tree_sum(x))
    assert finding.passed
    assert finding.figures is not None
    assert finding.figures.oracle_excused > 0


def test_a_float64_sum_passes_where_eager_is_less_accurate() -> None:
    """More accurate than eager is right."""
    x = _cancelling(8, 4096)
    assert judge(aten.sum.dim_IntList, (x, [1]), x.double().sum(1).float()).passed


@pytest.mark.parametrize("step", [torch.bfloat16, torch.float16])
def test_a_sum_accumulated_in_a_half_type_fails(step: torch.dtype) -> None:
    """On data that cancel as on random data."""
    for x in (_cancelling(8, 1024) / 1000, torch.randn(8, 1024)):
        assert not judge(aten.sum.dim_IntList, (x, [1]), _tree_sum(x, step)).passed


def _product_in_a_tree(x: torch.Tensor, step: torch.dtype = torch.float32) -> torch.Tensor:
    """Running products of a row, each out of two of half as many factors."""
    distance = 1
    while distance < x.numel():
        x = torch.cat([x[:distance], (x[distance:] * x[:-distance]).to(step).float()])
        distance *= 2
    return x


def _product_in_parts(x: torch.Tensor) -> torch.Tensor:
    """Sixteen factors one after another, and then such parts in a tree."""
    parts = x.view(-1, 16)
    within = torch.stack([parts[:, : n + 1].prod(1) for n in range(16)], 1)
    before = torch.cat([torch.ones(1), _product_in_a_tree(within[:, -1])[:-1]])
    return (within * before[:, None]).flatten()


def test_a_product_in_another_order_passes_however_lucky_eager_is() -> None:
    """Of these 40 products 2 were refused when only eager's own error widened the tolerance."""
    for seed in range(40):
        x = torch.exp(0.02 * torch.randn(8192, generator=torch.Generator().manual_seed(seed)))
        one, other = _product_in_a_tree(x), _product_in_parts(x)
        assert compare(call_of(aten.cumprod.default, x, 0), [[one]], [[other]], tolerance="strict").passed


@pytest.mark.parametrize("step", [torch.bfloat16, torch.float16])
def test_a_product_whose_steps_are_rounded_to_a_half_type_fails(step: torch.dtype) -> None:
    """Each time, and by far."""
    for count in (64, 8192):
        x = torch.exp(0.02 * torch.randn(count))
        assert not judge(aten.cumprod.default, (x, 0), _product_in_a_tree(x, step)).passed


@pytest.mark.parametrize(
    ("op", "args", "shape"),
    [(aten.prod.default, (), ()), (aten.prod.dim_int, (1,), (3, 5)), (aten.cumprod.default, (-2,), (3, 4, 5))],
)
def test_a_product_is_granted_what_its_factors_round(
    op: torch._ops.OpOverload, args: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """The more there are, the more; of running products each has one more than the one before."""
    x = torch.rand(3, 4, 5) + 0.5
    opinion = Oracle(call_of(op, x, *args), str(op).removeprefix("aten.").partition(".")[0], 1).opinion(0)
    assert opinion is not None
    assert opinion.slack is not None
    factors = {0: 60.0, 2: 4.0, 3: torch.arange(1.0, 5.0).view(1, 4, 1)}[len(shape)]
    expected = 6 * 0.2123 * 2.0**-23 * opinion.value * (torch.as_tensor(factors).double().sqrt())
    assert shape == tuple(opinion.slack.shape)
    torch.testing.assert_close(opinion.slack, expected.expand(shape), rtol=1e-3, atol=0.0)


def test_a_matrix_product_in_blocks_passes() -> None:
    """Also where rows cancel."""
    a, b = _cancelling(32, 1024), torch.randn(1024, 32)
    product = torch.zeros(32, 32)
    for block in range(0, 1024, 16):
        product = product + a[:, block : block + 16] @ b[block : block + 16]
    assert judge(aten.mm.default, (a, b), product).passed


@pytest.mark.parametrize("lower", [_tf32, lambda x: x.bfloat16().float(), lambda x: x.half().float()])
def test_a_matrix_product_of_rounded_operands_fails(lower: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """TF32, bfloat16 and float16 operands are not what float32 asks for."""
    for a in (torch.randn(32, 1024), _cancelling(32, 1024)):
        b = torch.randn(1024, 32)
        assert not judge(aten.mm.default, (a, b), lower(a) @ lower(b)).passed


def test_a_bfloat16_product_accumulated_in_bfloat16_fails() -> None:
    """Operands in bfloat16 do not make the accumulator one."""
    a, b = torch.randn(32, 2048).bfloat16(), torch.randn(2048, 32).bfloat16()
    product = torch.zeros(32, 32)
    for block in range(0, 2048, 16):
        product = (product + a[:, block : block + 16].float() @ b[block : block + 16].float()).bfloat16().float()
    assert not judge(aten.mm.default, (a, b), product.bfloat16()).passed


def test_layer_norm_on_offset_data_follows_the_error_of_eager() -> None:
    """Eager is off by 1e-3 there; the textbook's unstable variance is off by far more."""
    x = torch.randn(16, 1024) + 1e4
    args = (x, [1024], None, None, 1e-5)
    exact = tuple(result.float() for result in aten.native_layer_norm(x.double(), *args[1:]))
    mean = x.mean(1, keepdim=True)
    rstd = torch.rsqrt((x * x).mean(1, keepdim=True) - mean * mean + 1e-5)
    assert judge(aten.native_layer_norm.default, args, exact).passed
    assert not judge(aten.native_layer_norm.default, args, ((x - mean) * rstd, mean, rstd)).passed


def test_a_float16_overflow_of_eager_does_not_bind() -> None:
    """A scan that overflows on the way is right with the finite sums and with eager's infinities."""
    x = torch.tensor([60000.0, 60000.0, -60000.0], dtype=torch.float16)
    call = call_of(aten.cumsum.default, x, 0)
    eager = torch.tensor([60000.0, torch.inf, torch.inf], dtype=torch.float16)
    honest = torch.tensor([60000.0, torch.inf, 60000.0], dtype=torch.float16)
    wrong = torch.tensor([60000.0, torch.inf, 1.0], dtype=torch.float16)
    assert compare(call, [[eager]], [[honest]], tolerance="strict").passed
    assert not compare(call, [[eager]], [[wrong]], tolerance="strict").passed


def test_special_values_bind_only_where_eager_agrees_with_float64() -> None:
    """Eager's NaN for an infinite input may also be float64's answer, and nothing else."""
    x = torch.tensor([torch.inf, 1.0])
    call = call_of(aten.gelu.default, x)
    eager, oracle = torch.tensor([torch.nan, 0.8413447]), torch.tensor([torch.inf, 0.8413447])
    for answer in (eager, oracle):
        assert compare(call, [[eager]], [[answer]], tolerance="strict").passed
    assert not compare(call, [[eager]], [[torch.tensor([0.0, 0.8413447])]], tolerance="strict").passed


@pytest.mark.parametrize("op", [aten.remainder.Tensor, aten.fmod.Tensor])
def test_a_remainder_may_be_right_where_eager_has_no_number(op: torch._ops.OpOverload) -> None:
    """On a CPU its quotients are float32's, here infinite; what is no remainder is refused as well there."""
    x, y = torch.full((16,), 5.991), torch.full((16,), torch.finfo(torch.float32).tiny)
    exact = op(x.double(), y.double()).float()
    assert judge(op, (x, y), exact).passed
    assert not judge(op, (x, y), x).passed


def test_a_remainder_by_a_rounded_quotient_fails() -> None:
    """Of 0.7 by 0.1, which in float32 is 6.9999998 times as much."""
    x, y = torch.full((16,), 0.7), torch.full((16,), 0.1)
    assert judge(aten.remainder.Tensor, (x, y), torch.remainder(x.double(), y.double()).float()).passed
    assert not judge(aten.remainder.Tensor, (x, y), x - y * (x / y).floor()).passed


def test_the_oracle_leaves_the_inputs_and_the_default_dtype_alone() -> None:
    """It runs in-place ops on copies."""
    x = torch.tensor([1.0, 2.0])
    opinion = Oracle(call_of(aten.exp_.default, x), "exp", 1).opinion(0)
    assert opinion is not None
    assert torch.float64 == opinion.value.dtype
    assert [1.0, 2.0] == x.tolist()
    assert torch.float32 == torch.get_default_dtype()


def test_an_explicit_dtype_is_widened_too() -> None:
    """``dtype=float32`` in the call must not narrow the oracle."""
    x = torch.tensor([1.0, 2.0])
    opinion = Oracle(call_of(aten.sum.default, x, dtype=torch.float32), "sum", 1).opinion(0)
    assert opinion is not None
    assert torch.float64 == opinion.value.dtype


def test_written_inputs_follow_the_results() -> None:
    """Running statistics are results of a batch norm in training."""
    x, mean, var = torch.randn(4, 3), torch.zeros(3), torch.ones(3)
    call = call_of(aten._native_batch_norm_legit.default, x, None, None, mean, var, True, 0.1, 1e-5)
    opinion = Oracle(call, "_native_batch_norm_legit", 5).opinion(3)
    assert opinion is not None
    assert torch.allclose(0.1 * x.double().mean(0), opinion.value)


def test_there_is_no_oracle_for_ops_that_mean_something_else_in_float64() -> None:
    """A next number is another unit away; a rounded division jumps by 1 at a boundary."""
    x = torch.tensor([1.0])
    assert Oracle(call_of(aten.nextafter.default, x, x), "nextafter", 1).opinion(0) is None
    call = call_of(aten.div.Tensor_mode, x, x, rounding_mode="floor")
    assert Oracle(call, "div", 1).opinion(0) is None


def test_attention_may_round_its_probabilities_and_nothing_more() -> None:
    """An accurate one passes beside eager's, one without the scale does not."""
    q, k, v = (torch.randn(1, 2, 64, 16).bfloat16() for _ in range(3))
    flash = aten._scaled_dot_product_flash_attention_for_cpu.default
    call, (eager, lse) = call_of(flash, q, k, v, 0.0), flash(q, k, v, 0.0)
    scores = q.float() @ k.float().mT / 4
    for answer, passed in ((scores, True), (scores * 1.1, False)):
        out = (answer.softmax(-1) @ v.float()).bfloat16()
        assert passed == compare(call, [[eager, lse]], [[out, lse]], tolerance="strict").passed


@pytest.mark.parametrize("with_bias", [True, False])
def test_a_norm_by_nearly_nothing_may_be_as_far_off_as_its_variances_rounding(*, with_bias: bool) -> None:
    """OpInfo asks a negative eps: where the variance is its opposite, nothing is left to divide by."""
    norm = aten.native_layer_norm.default
    torch.manual_seed(3)
    x = torch.randn(16, 96, dtype=torch.float64)
    x[5] *= (0.5 * (1 + 2e-6) / x[5].var(correction=0)) ** 0.5
    bias = torch.randn(96) if with_bias else None
    call = call_of(norm, x.float(), [96], None, bias, -0.5)
    eager = list(norm(*call.args))
    centred = x.float() - x.float().mean(-1, keepdim=True)
    variance = (
        centred[..., ::2].square().sum(-1, keepdim=True) + centred[..., 1::2].square().sum(-1, keepdim=True)
    ) / 96
    for error, passed in ((0.0, True), (1e-7, True), (1e-5, False)):
        rstd = (variance * (1 + error) - 0.5).rsqrt()
        out = centred * rstd + (0.0 if bias is None else bias)
        answer = [out, eager[1], rstd]
        assert passed == compare(call, [eager], [answer], tolerance="strict").passed


def test_next_to_a_pole_the_last_digits_of_an_input_decide() -> None:
    """Eager's trigamma is off there by more than the oracle believes; the true value is right, others are not."""
    x = torch.tensor([-3.0 + 20 * 2.0**-21, 1.5])
    truth = aten.polygamma.default(1, x.double())
    assert ((aten.polygamma.default(1, x) - truth).abs() / truth)[0] > 1e-3
    call = partial(judge, aten.polygamma.default, (1, x), tolerance="strict")
    assert call(candidate=truth.float()).passed
    assert not call(candidate=truth.float() * torch.tensor([2.0, 1.0])).passed
    assert not call(candidate=truth.float() * torch.tensor([1.0, 1.001])).passed


def test_a_gradient_at_a_kink_may_be_that_of_either_side() -> None:
    """A place that is rounded to one side of a sample's border has that side's slope; in the middle there is one."""
    image, dy = torch.randn(1, 1, 4, 4), torch.ones(1, 1, 1, 2)
    border = torch.tensor([[[[0.25, 0.1], [0.4, 0.1]]]])  # (x + 1) * 4 / 2 - 1 / 2 = 2: a border, which 0.4 is not.
    before = border * (1 - 2.0**-21)
    backward = aten.grid_sampler_2d_backward.default
    call = call_of(backward, dy, image, border, 0, 0, False, [True, True])
    eager = list(backward(*call.args))
    other = list(backward(dy, image, before, 0, 0, False, [True, True]))
    assert (eager[1] - other[1]).abs()[0, 0, 0, 0] > 1e-2
    assert compare(call, [eager], [other], tolerance="strict").passed
    wrong = eager[1].clone()
    wrong[0, 0, 1, 0] *= 1.01
    assert not compare(call, [eager], [[eager[0], wrong]], tolerance="strict").passed


def gradients_of(
    call: JudgedCall, change: Callable[[torch.Tensor], torch.Tensor] = torch.clone
) -> tuple[torch.Tensor, ...]:
    """Those of attention, a row of queries at a time in float32, from changed operands."""
    gradient, q, k, v, out, lse = (arg.float() for arg in call.args[:6])
    q, k, v, gradient = change(q), change(k), change(v), change(gradient)
    found = [torch.zeros_like(tensor) for tensor in (q, k, v)]
    for row in range(q.shape[-2]):
        one = slice(row, row + 1)
        p = (q[..., one, :] @ k.mT / q.shape[-1] ** 0.5 - lse[..., one, None]).exp()
        delta = (gradient[..., one, :] * out[..., one, :]).sum(-1, keepdim=True)
        ds = change(p * (gradient[..., one, :] @ v.mT - delta) / q.shape[-1] ** 0.5)
        found[0][..., one, :] = ds @ k
        found[1] += ds.mT @ q[..., one, :]
        found[2] += change(p).mT @ gradient[..., one, :]
    return tuple(tensor.to(call.args[1].dtype) for tensor in found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("consistent", [True, False])
def test_attentions_gradients_may_differ_by_what_float32_loses(
    dtype: torch.dtype, scale: float, *, consistent: bool
) -> None:
    """Also for results of a forward call that do not belong to these queries: all take them as they are."""
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    for seed in range(3):
        torch.manual_seed(seed)
        q, k, v, gradient = ((torch.randn(1, 2, 48, 16) * scale).to(dtype) for _ in range(4))
        out, lse = aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, 0.0)
        if not consistent:
            out, lse = torch.randn_like(out), lse + torch.randn_like(lse)
        call = call_of(backward, gradient, q, k, v, out, lse, 0.0, False)
        eager = list(backward(*call.args))
        finding = compare(call, [eager], [list(gradients_of(call))], tolerance="strict")
        assert finding.passed, finding.detail


def test_attentions_gradients_of_rounded_operands_fail() -> None:
    """As do those of another scale."""
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    torch.manual_seed(1)
    q, k, v, gradient = (torch.randn(1, 2, 48, 16) for _ in range(4))
    call = call_of(
        backward, gradient, q, k, v, *aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, 0.0), 0.0, False
    )
    eager = list(backward(*call.args))
    wrong = [[*gradients_of(call, _tf32)], [eager[0] * 1.001, *eager[1:]], [eager[1], eager[0], eager[2]]]
    for answer in wrong:
        assert not compare(call, [eager], [answer], tolerance="strict").passed


def test_attentions_gradients_are_eagers_in_float64() -> None:
    """With a mask, causal, and with keys that heads share."""
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    q, gradient = (torch.randn(2, 4, 24, 16) for _ in range(2))
    for causal, keys, mask in (
        (False, 24, None),
        (True, 24, None),
        (True, 40, None),
        (False, 24, torch.randn(2, 4, 24, 24)),
    ):
        k, v = (torch.randn(2, 4, keys, 16) for _ in range(2))
        out, lse = forward(q, k, v, 0.0, causal, attn_mask=mask)
        call = call_of(backward, gradient, q, k, v, out, lse, 0.0, causal, attn_mask=mask)
        wide_q, wide_k, wide_v = wide = [tensor.double().requires_grad_() for tensor in (q, k, v)]
        wide_mask = None if mask is None else mask.double()
        textbook = torch.nn.functional.scaled_dot_product_attention(wide_q, wide_k, wide_v, wide_mask, 0.0, causal)
        expected = torch.autograd.grad(textbook, wide, gradient.double())
        oracle = Oracle(call, "_scaled_dot_product_flash_attention_for_cpu_backward", 3)
        for index, exact in enumerate(expected):
            opinion = oracle.opinion(index)
            assert opinion is not None
            torch.testing.assert_close(opinion.value, exact, rtol=1e-5, atol=1e-5)
    shared = gradients_of_shared_heads()
    torch.testing.assert_close(*shared, rtol=1e-5, atol=1e-5)


def gradients_of_shared_heads() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What the formulas say where four heads share two keys, and autograd through repeated ones."""
    q, gradient = (torch.randn(1, 4, 12, 8, dtype=torch.float64) for _ in range(2))
    k, v = (torch.randn(1, 2, 12, 8, dtype=torch.float64) for _ in range(2))
    tensors = [tensor.requires_grad_() for tensor in (q, k, v)]
    scores = q @ k.repeat_interleave(2, 1).mT / 8**0.5
    out = scores.softmax(-1) @ v.repeat_interleave(2, 1)
    arguments = {
        "query": q,
        "key": k,
        "value": v,
        "out": out,
        "grad_out": gradient,
        "logsumexp": scores.logsumexp(-1),
        "dropout_p": 0.0,
        "is_causal": False,
    }
    with torch.no_grad():
        found = gradients(arguments)
    assert found is not None
    return [result.value for result in found], list(torch.autograd.grad(out, tensors, gradient))


@pytest.mark.parametrize("probability", [0.0, 0.3])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_gradients_of_rows_know_what_was_dropped(kind: int, probability: float) -> None:
    """Memory-efficient attention's: every weight has a word of Philox, in order; 2 is a mask from the last key on."""
    q, k, v, gradient = (torch.randn(2, rows, 3, 8, dtype=torch.float64) for rows in (5, 9, 9, 5))
    bias = torch.randn(2, 3, 5, 9, dtype=torch.float64)
    tensors = [tensor.requires_grad_() for tensor in (q, k, v, bias)]
    scores = torch.einsum("bmhd,bnhd->bhmn", q, k) / 8**0.5 + bias
    if kind:
        scores = scores.masked_fill(~torch.ones(5, 9, dtype=torch.bool).tril(0 if kind == 1 else 4), -torch.inf)
    left = (philox.uniform(7, 22, 2 * 3 * 5 * 9, q.device) > probability).double().view(2, 3, 5, 9) / (1 - probability)
    out = torch.einsum("bhmn,bnhd->bmhd", scores.softmax(-1) * left, v)
    call = (gradient, q, k, v, bias, out, None, None, 5, 9, scores.logsumexp(-1), probability)
    state = torch.tensor(7), torch.tensor(22), kind, True
    op = aten._efficient_attention_backward.default
    with torch.no_grad():
        oracle = Oracle(call_of(op, *call, *state), "_efficient_attention_backward", 4)
        opinions = [oracle.opinion(index) for index in range(4)]
    for opinion, expected in zip(opinions, torch.autograd.grad(out, tensors, gradient), strict=True):
        assert opinion is not None
        torch.testing.assert_close(opinion.value, expected)
        assert opinion.slack is not None
        assert opinion.slack.shape == expected.shape


def call_of_rows(kind: int, bias: torch.Tensor, probability: float) -> tuple[JudgedCall, JudgedCall]:
    """Memory-efficient attention of 5 queries and 9 keys, and its gradients."""
    q, k, v, out, gradient = (torch.randn(2, rows, 3, 8) for rows in (5, 9, 9, 5, 5))
    forward = (q, k, v, bias, None, None, None, None, 0.0, kind)
    backward = (gradient, q, k, v, bias, out, None, None, 5, 9, torch.randn(2, 3, 5) + 3, probability)
    state = torch.tensor(7), torch.tensor(22), kind, True
    return (
        call_of(aten._efficient_attention_forward.default, *forward),
        call_of(aten._efficient_attention_backward.default, *backward, *state),
    )


def call_of_heads(mask: torch.Tensor | None, *, causal: bool) -> tuple[JudgedCall, JudgedCall]:
    """Attention of 5 queries and 9 keys that two heads share, and its gradients."""
    q, out, gradient = (torch.randn(2, 4, 5, 8).bfloat16() for _ in range(3))
    k, v = (torch.randn(2, 2, 9, 8).bfloat16() for _ in range(2))
    backward = (gradient, q, k, v, out, torch.randn(2, 4, 5) + 3, 0.0, causal)
    return (
        call_of(aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, v, 0.0, causal, attn_mask=mask),
        call_of(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, *backward, attn_mask=mask),
    )


@pytest.mark.parametrize("block", [1, 2 * 4 * 9 * 2])
def test_blocks_of_queries_give_what_all_of_them_give(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """One query or two at a time, with masks of all kinds; five are no multiple of two."""
    seen = torch.rand(2, 1, 5, 9) > 0.2
    pairs = [
        *(call_of_rows(kind, torch.randn(2, 3, 5, 9), 0.3) for kind in (0, 1, 2)),
        *(call_of_heads(mask, causal=False) for mask in (torch.randn(2, 4, 1, 9), torch.randn(5, 9))),
        *(call_of_heads(None, causal=causal) for causal in (False, True)),
    ]
    forwards = [call for call, _ in pairs] + [call_of_heads(seen, causal=False)[0]]
    whole = [opinions_of(call) for call in (*forwards, *(call for _, call in pairs))]
    monkeypatch.setattr(attention_oracle, "BLOCK_WEIGHTS", block)
    for call, expected in zip((*forwards, *(call for _, call in pairs)), whole, strict=True):
        torch.testing.assert_close(opinions_of(call), expected)


def opinions_of(call: JudgedCall) -> list[torch.Tensor]:
    """The values and slacks of all results that are known."""
    oracle = Oracle(call, call.schema.name.removesuffix(".default"), 6)
    opinions = [oracle.opinion(index) for index in range(4)]
    assert opinions[0] is not None
    return [tensor for opinion in opinions if opinion is not None for tensor in opinion[:2] if tensor is not None]


def test_attention_keeps_no_more_weights_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole matrices of weights of long sequences fit into no memory."""
    monkeypatch.setattr(attention_oracle, "BLOCK_WEIGHTS", 2 * 64 * 4)
    largest = _LargestResult()
    for call in call_of_long_heads():
        with largest:
            opinions_of(call)
    assert largest.elements == 2 * 64 * 8  # A query's, not 2 * 64 * 64 weights.


def call_of_long_heads() -> tuple[JudgedCall, JudgedCall]:
    """Causal attention of two heads with 64 queries and keys, and its gradients."""
    q, k, v, out, gradient = (torch.randn(1, 2, 64, 8) for _ in range(5))
    return (
        call_of(aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, v, 0.0, True),
        call_of(
            aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
            *(gradient, q, k, v, out, torch.randn(1, 2, 64) + 3, 0.0, True),
        ),
    )


class _LargestResult(TorchDispatchMode):
    """Counts the elements of the largest tensor that an op gives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        returned = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(returned):
            if isinstance(leaf, torch.Tensor):
                self.elements = max(self.elements, leaf.numel())
        return returned


def test_logarithms_nearer_to_float64_than_eager_pass() -> None:
    """Of scores in the thousands eager's are off in float32; operands rounded to TF32 fail, and so does a wrong sum."""
    q, k, v = (torch.randn(1, 2, 64, 64) * 12 for _ in range(3))
    out, _ = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)

    def logarithms(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (query.double() @ key.double().mT / 8).logsumexp(-1).float()

    right = logarithms(q, k)
    eager = out, right + right.abs() * 4e-6
    for other, passes in ((right, True), (logarithms(_tf32(q), _tf32(k)), False), (right + 0.5, False)):
        call = call_of(aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, v)
        finding = compare(call, [list(eager)], [[out, other]], tolerance="strict")
        assert finding.passed == passes, finding.detail


@pytest.mark.parametrize("op", ["_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_cudnn_attention"])
def test_logarithms_have_the_shape_of_eagers(op: str) -> None:
    """Of cuDNN in a column."""
    q = torch.randn(2, 3, 5, 8)
    options = (None, True) if "cudnn" in op else ()
    opinion = Oracle(call_of(getattr(aten, op).default, q, q, q, *options), op, 2).opinion(1)
    assert opinion is not None
    expected = (q.double() @ q.double().mT / 8**0.5).logsumexp(-1)
    torch.testing.assert_close(opinion.value, expected[..., None] if "cudnn" in op else expected)


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_rows_is_known(kind: int, *, masked: bool) -> None:
    """With every kind of causal mask; what scores of some hundred explain passes, and a wrong weight does not."""
    q, k, v = (torch.randn(2, rows, 3, 8) * 6 for rows in (5, 9, 9))
    bias = torch.randn(2, 3, 5, 9) if masked else None
    options = (q, k, v, bias, None, None, None, None, 0.0, kind)
    scores = torch.einsum("bmhd,bnhd->bhmn", q.double(), k.double()) + (0.0 if bias is None else bias.double())
    if kind:
        scores = scores.masked_fill(torch.ones(5, 9, dtype=torch.bool).triu(1 + (4 if kind == 2 else 0)), -torch.inf)
    expected = torch.einsum("bhmn,bnhd->bmhd", scores.softmax(-1), v.double())
    call = call_of(aten._efficient_attention_forward.default, *options, scale=1.0)
    opinion = Oracle(call, "_efficient_attention_forward", 6).opinion(0)
    assert opinion is not None
    assert opinion.slack is not None
    torch.testing.assert_close(opinion.value, expected)
    logarithms = Oracle(call, "_efficient_attention_forward", 6).opinion(1)
    assert logarithms is not None
    padded = torch.nn.functional.pad(scores.logsumexp(-1), (0, 27), value=torch.inf)
    torch.testing.assert_close(logarithms.value, padded)
    nudged = torch.einsum("bhmn,bnhd->bmhd", (scores * (1 + 1.2e-7)).softmax(-1), v.double())
    assert bool(((nudged - expected).abs() <= opinion.slack).all())
    assert bool(opinion.slack.max() < 1e-2 * expected.abs().max())


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_sequences_of_a_ragged_batch_see_themselves_alone(kind: int) -> None:
    """Each is attention of its own, of other numbers of queries and keys."""
    q, k, v = (torch.randn(1, rows, 3, 8) * 6 for rows in (9, 14, 14))
    ends = [torch.tensor(each, dtype=torch.int32) for each in ([0, 2, 6, 9], [0, 5, 10, 14])]
    call = call_of(aten._efficient_attention_forward.default, q, k, v, None, *ends, 4, 5, 0.0, kind)
    opinion = Oracle(call, "_efficient_attention_forward", 6).opinion(0)
    assert opinion is not None
    assert opinion.slack is not None
    assert q.shape == opinion.slack.shape
    for rows, keys in (((0, 2), (0, 5)), ((2, 6), (5, 10)), ((6, 9), (10, 14))):
        parts = q[:, slice(*rows)], k[:, slice(*keys)], v[:, slice(*keys)]
        options = (None, None, None, None, None, 0.0, kind)
        alone = call_of(aten._efficient_attention_forward.default, *parts, *options)
        expected = Oracle(alone, "_efficient_attention_forward", 6).opinion(0)
        assert expected is not None
        torch.testing.assert_close(opinion.value[:, slice(*rows)], expected.value)


def test_a_dropout_of_attention_and_rows_of_no_sequence_are_not_known() -> None:
    """A seed is a result, and nobody says what such rows hold; logarithms have a row for each sequence."""
    q = torch.randn(1, 4, 2, 8)
    lengths, few = (torch.tensor(each, dtype=torch.int32) for each in ([0, 2, 4], [0, 2, 3]))
    for options in ((None, None, None, None, 0.5, 0), (few, few, 2, 2, 0.0, 0)):
        call = call_of(aten._efficient_attention_forward.default, q, q, q, None, *options)
        assert Oracle(call, "_efficient_attention_forward", 6).opinion(0) is None
    call = call_of(aten._efficient_attention_forward.default, q, q, q, None, lengths, lengths, 2, 2, 0.0, 0)
    assert Oracle(call, "_efficient_attention_forward", 6).opinion(1) is None


def test_philox_gives_its_authors_answer() -> None:
    """For a counter and a key of zeros, as a number of (0, 1]; and from any place on."""
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    device = torch.device("cpu")
    assert [pytest.approx(word / 2**32) for word in words] == philox.uniform(0, 0, 4, device).tolist()
    far = (1 << 34) - 3
    assert torch.equal(philox.uniform(-5, far, 9, device)[4:], philox.uniform(-5, far + 4, 5, device))


@pytest.fixture
def attention(tmp_path: Path) -> Iterator[tuple[JudgedCall, torch.Tensor, Callable[..., torch.Tensor]]]:
    """A call of a Model whose results move by more than the tolerance with its inputs' last digits."""
    file = tmp_path / "problem.py"
    file.write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.key = torch.nn.Linear(16, 16)\n"
        "    def forward(self, x):\n"
        "        return torch.softmax(x @ self.key(x).transpose(-2, -1), dim=-1) @ x\n"
        "get_inputs = lambda: [torch.rand(20, 10, 16)]\n"
    )
    registry.use_problems({"problem": file}, "cpu")
    [schema] = registry.loaded_schemas(["problem"])
    x = torch.rand(20, 10, 16) * 24
    state = {name: tensor.clone() for name, tensor in registry.problem("problem").state().items()}

    def answer(x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        weight, bias = change(state["key.weight"]), state["key.bias"]
        x = change(x)
        keys = (x[:, :, None, :] * weight).sum(-1) + bias
        scores = (x[:, :, None, :] * keys[:, None]).sum(-1)
        return (torch.softmax(scores, dim=-1)[..., None] * x[:, None]).sum(-2)

    call = JudgedCall(schema=schema, args=(x,), kwargs={"state": state}, tolerance=None)
    with torch.no_grad():
        expected = registry.reference("problem")(x, state=state)
        yield call, expected, partial(answer, x)
    registry.use_problems({}, "cpu")


def test_a_module_may_differ_by_what_its_inputs_roundings_explain(
    attention: tuple[JudgedCall, torch.Tensor, Callable[..., torch.Tensor]],
) -> None:
    """Gradients are on, as they are where answers are compared."""
    call, expected, answer = attention
    with torch.enable_grad():
        finding = compare(call, [[expected]], [[answer(torch.clone)]], tolerance="strict")
    assert finding.passed, finding.detail
    assert finding.figures is not None
    assert finding.figures.oracle_excused > 0


def test_a_module_computed_from_rounded_operands_fails(
    attention: tuple[JudgedCall, torch.Tensor, Callable[..., torch.Tensor]],
) -> None:
    """A lower precision is off by a thousand times more."""
    call, expected, answer = attention
    assert not compare(call, [[expected]], [[answer(_tf32)]], tolerance="strict").passed


@pytest.fixture
def norm_gradients(tmp_path: Path) -> Iterator[Callable[[int, float], tuple[JudgedCall, torch.Tensor, torch.Tensor]]]:
    """Draws what a bias in front of a batch norm gets, which is rounding alone, beside a gradient that is more."""
    file = tmp_path / "problem.py"
    file.write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x, dy):\n"
        "        mean, rstd = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0).rsqrt()\n"
        "        backward = torch.ops.aten.native_batch_norm_backward\n"
        "        mask = [True, False, False]\n"
        "        dx = backward(dy, x, None, None, None, mean, rstd, True, 0.0, mask)[0]\n"
        "        return torch.cat([(dx * dy).mean((0, 2, 3)), dx.sum((0, 2, 3))])\n"
        "get_inputs = lambda: [torch.rand(4, 8, 16, 16), torch.rand(4, 8, 16, 16)]\n"
    )
    registry.use_problems({"problem": file}, "cpu")
    [schema] = registry.loaded_schemas(["problem"])

    def draw(seed: int, mean: float) -> tuple[JudgedCall, torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        x, dy = (torch.randn(4, 8, 16, 16, generator=generator) + mean for _ in range(2))
        call = JudgedCall(schema=schema, args=(x, dy), kwargs={"state": {}}, tolerance=None)
        # Eager's sums are in double precision on a CPU.
        return call, in_one_accumulator(x.double(), dy.double()).float(), in_one_accumulator(x, dy)

    yield draw
    registry.use_problems({}, "cpu")


def in_one_accumulator(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """The gradients with every mean over 1,024 values, and every sum over them, as one running sum in float32."""

    def total(tensor: torch.Tensor) -> torch.Tensor:
        # torch's own running sums are in double precision on a CPU.
        return torch.from_numpy(np.add.accumulate(tensor.numpy(), axis=1)[:, -1:])

    def mean(tensor: torch.Tensor) -> torch.Tensor:
        return total(tensor) / tensor.shape[1]

    x, dy = (tensor.movedim(1, 0).flatten(1) for tensor in (x, dy))
    centred = x - mean(x)
    rstd = mean(centred.square()).rsqrt()
    normal = centred * rstd
    dx = (dy - mean(dy) - normal * mean(dy * normal)) * rstd
    return torch.cat([mean(dx * dy), total(dx)])[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_what_only_the_steps_on_the_way_round_is_granted(
    norm_gradients: Callable[[int, float], tuple[JudgedCall, torch.Tensor, torch.Tensor]], mean: float
) -> None:
    """No input moves a gradient that is 0 for all of them, and every draw of every element has to be granted."""
    excused = 0
    for seed in range(20):
        call, expected, answer = norm_gradients(seed, mean)
        finding = compare(call, [[expected]], [[answer]], tolerance="strict")
        assert finding.passed, finding.detail
        assert finding.figures is not None
        excused += finding.figures.oracle_excused
        for factor in (1.0 + 1e-4, 1.0 - 1e-4):
            wrong = answer * torch.tensor([factor] * 8 + [1.0] * 8)
            assert not compare(call, [[expected]], [[wrong]], tolerance="strict").passed
    assert excused > 0


def test_a_choice_of_elements_has_nothing_to_round(tmp_path: Path) -> None:
    """The last element of those chosen stays among them; if it did not, everything of its row would go far."""
    file = tmp_path / "problem.py"
    file.write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        least = torch.topk(x * 1.5, 10, dim=-1).values[:, -1:]\n"
        "        return torch.softmax((x * 1.5).masked_fill(x * 1.5 < least, -torch.inf), dim=-1)\n"
        "get_inputs = lambda: [torch.rand(4, 50)]\n"
    )
    registry.use_problems({"problem": file}, "cpu")
    try:
        [schema] = registry.loaded_schemas(["problem"])
        x = torch.randn(4, 50, generator=torch.Generator().manual_seed(3))
        call = JudgedCall(schema=schema, args=(x,), kwargs={"state": {}}, tolerance=None)
        expected = registry.reference("problem")(x, state={})
        powers = torch.exp(x * 1.5) * (expected > 0)
        found = powers / powers.sum(-1, keepdim=True)
        assert compare(call, [[expected]], [[found]], tolerance="strict").passed
        assert not compare(call, [[expected]], [[found.half().float()]], tolerance="strict").passed
    finally:
        registry.use_problems({}, "cpu")


@pytest.mark.parametrize("mean", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("count", [16, 1024])
def test_a_sum_moves_by_what_one_accumulator_rounds(mean: float, count: int) -> None:
    """In the root mean square of many sums, whether their terms cancel or not."""
    terms = np.random.default_rng(7).normal(mean, 1.0, (4000, count)).astype(np.float32)
    exact = terms.astype(np.float64).sum(1)
    rounded = np.add.accumulate(terms, axis=1)[:, -1] - exact
    squares = torch.from_numpy((terms.astype(np.float64) ** 2).sum(1))
    said = rounding_of_sum(torch.from_numpy(exact), squares, count, torch.finfo(torch.float32).eps)
    assert float(said.square().mean().sqrt()) == pytest.approx(np.sqrt((rounded**2).mean()), rel=0.4)


def test_every_trial_moves_in_its_own_way() -> None:
    """What all of them leave where it is is not granted."""
    x = torch.linspace(1, 2, 64, dtype=torch.float64)
    moved = torch.stack([perturbed(x, 0, trial=n) for n in range(TRIALS)])
    assert TRIALS == len(moved.unique(dim=0))
    assert torch.equal(moved[3], perturbed(x, 0, trial=3))
    ups = (moved > x).double().mean()
    assert 0.3 < ups < 0.7


def test_a_coordinate_that_eager_rounds_onto_a_pixel_may_be_on_its_right_side() -> None:
    """43.0000007 pixels, reflected: float32 makes 43 of it, and takes the slope of the cell on the other side."""
    image, dy = torch.randn(1, 1, 4, 24), torch.ones(1, 1, 1, 1)
    grid = torch.tensor([[[[2.7391304969787598, 0.1]]]])
    backward = aten.grid_sampler_2d_backward.default
    call = call_of(backward, dy, image, grid, 0, 2, True, [True, True])
    eager = list(backward(*call.args))
    truth = [out.float() for out in backward(dy.double(), image.double(), grid.double(), 0, 2, True, [True, True])]
    assert (eager[1] - truth[1]).abs().max() > 1e-2
    assert compare(call, [eager], [truth], tolerance="strict").passed
    assert not compare(call, [eager], [[truth[0], truth[1] * torch.tensor([1.0, 1.01])]], tolerance="strict").passed


def test_far_outside_of_an_image_a_cubic_slope_is_what_its_weights_round_to() -> None:
    """All pixels that are weighed are the border's, and slopes of one value add up to nothing."""
    image, dy = torch.randn(1, 1, 3, 20), torch.ones(1, 1, 1, 1)
    grid = torch.tensor([[[[4.321, 0.1]]]])
    backward = aten.grid_sampler_2d_backward.default
    call = call_of(backward, dy, image, grid, 2, 1, False, [True, True])
    eager = list(backward(*call.args))
    for error, passed in ((1e-6, True), (1e-3, False)):
        other = eager[1] + torch.tensor([error * image.abs().max().item() * 20, 0.0])
        assert passed == compare(call, [eager], [[eager[0], other]], tolerance="strict").passed


@pytest.mark.parametrize("op", [aten.var_mean.correction, aten.std_mean.correction])
def test_a_mean_beside_a_variance_may_lose_what_cancels(op: torch._ops.OpOverload) -> None:
    """As a mean by itself; the variance may not."""
    x = _cancelling(8, 1024)
    call = call_of(op, x, [1])
    eager = list(op(x, [1]))
    running = torch.zeros(8)
    for count, column in enumerate(x.unbind(1), start=1):
        running += (column - running) / count
    assert (running - eager[1]).abs().max() > 1e-5
    assert compare(call, [eager], [[eager[0], running]], tolerance="strict").passed
    assert not compare(call, [eager], [[eager[0], eager[1] + 0.05]], tolerance="strict").passed
    assert not compare(call, [eager], [[eager[0] * 1.001, eager[1]]], tolerance="strict").passed


def _through_a_half_type(dtype: torch.dtype) -> tuple[JudgedCall, torch.Tensor, torch.Tensor]:
    """Sums of five terms, by eager on a GPU, which rounds at every step, and by float64."""
    x = (torch.rand(8, 8192, 5) * 18 - 9).to(dtype)
    steps = [x[..., 0]]
    for column in x.unbind(-1)[1:]:
        steps.append(steps[-1] + column)
    return call_of(aten.cumsum.default, x, 2), torch.stack(steps, -1), x.double().cumsum(2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_eager_may_lose_what_cancels_by_rounding_on_the_way(dtype: torch.dtype) -> None:
    """By more than the oracle is believed; the accurate sum is right all the same, and one that is off is not."""
    call, eager, truth = _through_a_half_type(dtype)
    error, tolerance = eager - truth, tolerance_for("strict", dtype)
    units = error.abs() / (truth.abs() * tolerance.rtol + tolerance.atol)
    assert units.max() > TRUST[dtype]
    assert compare(call, [[eager]], [[truth.to(dtype)]], tolerance="strict").passed
    for share in (-0.25, 0.25):
        wrong = torch.where(units == units.max(), truth + share * error, truth)
        assert not compare(call, [[eager]], [[wrong.to(dtype)]], tolerance="strict").passed


def test_an_error_of_eager_that_no_rounding_explains_leaves_the_oracle_unbelieved() -> None:
    """Float64 then answers another question."""
    call, eager, truth = _through_a_half_type(torch.bfloat16)
    smallest = truth[..., 4].abs().argmin()
    eager[..., 4].view(-1)[smallest] = 0.5 * call.args[0].abs().sum(2).view(-1)[smallest]
    assert not compare(call, [[eager]], [[truth.bfloat16()]], tolerance="strict").passed


def test_a_group_norm_may_be_more_accurate_than_rounded_statistics() -> None:
    """Eager on a GPU rounds mean and deviation before it uses them."""
    x, weight, bias = ((torch.rand(size) * 18 - 9).bfloat16() for size in ((20, 6, 100), (6,), (6,)))
    args = (x, weight, bias, 20, 6, 100, 1, 1e-5)
    truth = [out.bfloat16() for out in aten.native_group_norm(*(arg.double() for arg in args[:3]), *args[3:])]
    mean, rstd = (each.float().view(20, 1, 1) for each in truth[1:])
    scale = rstd * weight.float().view(6, 1)
    eager = x.float() * scale + (bias.float().view(6, 1) - scale * mean)
    call = call_of(aten.native_group_norm.default, *args)
    assert ((eager - truth[0]).abs() / (truth[0].abs() * 1.6e-2 + 1e-5)).max() > TRUST[torch.bfloat16]
    assert compare(call, [[eager.bfloat16(), *truth[1:]]], [truth], tolerance="strict").passed
    wrong = [truth[0] * 1.1, *truth[1:]]
    assert not compare(call, [[eager.bfloat16(), *truth[1:]]], [wrong], tolerance="strict").passed


def textbook_gradients(dy: torch.Tensor, x: torch.Tensor) -> dict[str, tuple[JudgedCall, torch.Tensor]]:
    """A call of each gradient of an activation, and what float32 makes of the textbook's formula."""
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    minus = torch.expm1(-2 * inner.abs())
    t = (-minus / (2 + minus)).copysign(x)  # A tanh that is another one than eager's in its last digit.
    bend = 0.7978845608028654 * (1 + 0.134145 * x * x)
    s, y, p = x.sigmoid(), x.tanh(), x.exp().log1p().tanh()
    return {
        "tanh": (call_of(aten.tanh_backward.default, dy, y), dy * (1 - y * y)),
        "sigmoid": (call_of(aten.sigmoid_backward.default, dy, s), dy * (s - s * s)),
        "silu": (call_of(aten.silu_backward.default, dy, x), dy * (s + x * s * (1 - s))),
        "gelu": (
            call_of(aten.gelu_backward.default, dy, x, approximate="tanh"),
            dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * bend),
        ),
        "mish": (call_of(aten.mish_backward.default, dy, x), dy * (p + x * s * (1 - p * p))),
        "log_sigmoid": (call_of(aten.log_sigmoid_backward.default, dy, x, torch.exp(-x.abs())), dy * (1 - s)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "silu", "gelu", "mish", "log_sigmoid"])
def test_a_gradient_of_an_activation_may_lose_what_cancels(activation: str) -> None:
    """``1 - y y`` of a ``y`` next to 1 is made of roundings; of 40 seeds, eager's luck refused up to all."""
    for seed in range(8):
        torch.manual_seed(seed)
        dy, x = torch.randn(1000) * 1000, torch.randn(1000) * 3
        call, other = textbook_gradients(dy, x)[activation]
        backward = getattr(aten, f"{activation}_backward").default
        eager = backward(*call.args, **call.kwargs)
        assert compare(call, [[eager]], [[other]], tolerance="strict").passed
        assert not compare(call, [[eager]], [[other * 1.0001]], tolerance="strict").passed
        rounded, _ = textbook_gradients(dy, x.bfloat16().float())[activation]
        wrong = backward(*rounded.args, **rounded.kwargs)
        assert not compare(call, [[eager]], [[wrong]], tolerance="strict").passed


def test_a_gradient_of_softmax_may_lose_what_cancels() -> None:
    """Where a probability is nearly 1, the mean that is subtracted is nearly the gradient itself."""
    y = torch.tensor([9.0, 0.5, 0.1, 0.2, 0.3, 0.4]).softmax(0).expand(64, 6).contiguous()
    dy = torch.rand(64, 6) * torch.tensor([1e-6] + [1e-12] * 5)
    truth = aten._softmax_backward_data.default(dy.double(), y.double(), 1, torch.float64)
    order = [5, 0, 4, 1, 3, 2]
    product = dy * y
    total = product[:, order[0]]
    for k in order[1:]:
        total = total + product[:, k]
    other = y * (dy - total[:, None])
    call = call_of(aten._softmax_backward_data.default, dy, y, 1, torch.float32)
    call = replace(call, small_results=True)
    passed = partial(compare, call, [[truth.float()]], tolerance="strict")
    assert ((other - truth).abs() / truth.abs()).max() > 1e-5
    assert passed([[other]]).passed
    assert not passed([[other * 1.0001]]).passed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_trigamma_may_be_infinite_at_its_poles(dtype: torch.dtype) -> None:
    """Where eager's sine of a multiple of pi is not zero, in float64 neither; between poles it may not."""
    x = torch.tensor([-7.0, -1.0, 0.0, -2.5, 3.0], dtype=dtype)
    truth = torch.tensor([torch.inf] * 3 + [9.5392332, 0.3949341], dtype=dtype)
    assert judge(aten.polygamma.default, (1, x), truth).passed
    assert judge(aten.polygamma.default, (1, x), aten.polygamma.default(1, x)).passed
    for wrong in (truth.new_tensor([torch.inf, -torch.inf, *truth[2:]]), truth.masked_fill(x == -2.5, torch.inf)):
        assert not judge(aten.polygamma.default, (1, x), wrong).passed


def _rounded_midway(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An antialiased resampling with rows kept in a half type before columns are averaged, and one in float32."""
    height, width = x.shape[-2] // 2, x.shape[-1] * 2 // 3
    resample = partial(aten._upsample_bicubic2d_aa.default, align_corners=False)
    rows = resample(x.float(), [x.shape[-2], width])
    return tuple(resample(each, [height, width]).to(x.dtype) for each in (rows.to(x.dtype).float(), rows))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_linear_op_that_eager_rounds_midway_may_be_accurate(dtype: torch.dtype) -> None:
    """Where terms cancel eager is off by any number of units; who is near float64 passes, a few percent off fail."""
    x = torch.randn(4, 3, 200, 240).to(dtype)
    eager, exact = _rounded_midway(x)
    off = (eager.double() - exact.double()).abs() / exact.double().abs()
    assert off.max() > {torch.bfloat16: 64 * 1.6e-2, torch.float16: 256 * 1e-3}[dtype]
    call = call_of(aten._upsample_bicubic2d_aa.default, x, list(exact.shape[2:]), False)
    assert compare(call, [[eager]], [[exact]], tolerance="strict").passed
    worst = torch.zeros_like(exact)
    worst.view(-1)[off.argmax()] = 0.05
    for wrong in (exact * 1.05, exact + worst, torch.zeros_like(exact)):
        assert not compare(call, [[eager]], [[wrong]], tolerance="strict").passed


def test_pixels_that_eager_finds_by_a_rounded_number_do_not_bind() -> None:
    """Eager numbers the pixels of a cubic sample in the type of the image: bfloat16 has no odd ones from 257."""
    image, grid = (torch.randn(2, 3, 40, 300) * 9).bfloat16(), torch.rand(2, 40, 60, 2).mul(2).sub(1).bfloat16()
    sample = aten.grid_sampler_2d.default
    rest = (2, 0, False)
    exact = sample(image.float(), grid.float(), *rest).bfloat16()
    misread = image[..., torch.arange(300).bfloat16().long().clamp(max=299)]
    eager = sample(misread.float(), grid.float(), *rest).bfloat16()
    call = call_of(sample, image, grid, *rest)
    assert (eager != exact).double().mean() < 0.2
    assert compare(call, [[eager]], [[exact]], tolerance="strict").passed
    moved = sample(image.float(), grid.float() + 2 / 300, *rest).bfloat16()
    for wrong in (moved, exact * 1.05):
        assert not compare(call, [[eager]], [[wrong]], tolerance="strict").passed


@pytest.mark.parametrize("mode", [0, 1])
def test_gradients_at_coordinates_that_eager_rounds_do_not_bind(mode: int) -> None:
    """A coordinate in the type of the image may lie in another cell; its own cell's gradient is right, no third."""
    image, dy = (torch.randn(2, 3, 9, 9) for _ in range(2))
    grid = torch.rand(2, 9, 9, 2).mul(2).sub(1).bfloat16()
    backward = aten.grid_sampler_2d_backward.default
    rounded = ((grid.double() + 1) * 4.5 - 0.5).bfloat16().double()
    args = image.bfloat16(), dy.bfloat16()
    call = call_of(backward, *args, grid, mode, 0, False, [True, True])

    def answer(coordinates: torch.Tensor) -> list[torch.Tensor]:
        found = backward(*(arg.double() for arg in args), coordinates, mode, 0, False, [True, True])
        return [gradient.bfloat16() for gradient in found]

    eager, exact = answer((rounded + 0.5) / 4.5 - 1), answer(grid.double())
    assert compare(call, [eager], [exact], tolerance="strict").passed
    wrong = [[exact[0] * 1.05, exact[1]], answer(grid.double() + 0.02)]
    for answers in wrong:
        assert not compare(call, [eager], [answers], tolerance="strict").passed


def _chained(x: torch.Tensor, lanes: int = 64) -> torch.Tensor:
    """Sums along the last dimension; a lane adds its terms one after another."""
    total = torch.zeros(*x.shape[:-1], lanes, dtype=x.dtype)
    for part in x.split(lanes, -1):
        total += part
    return total.sum(-1)


def _norm_gradients(rounded: Callable[[torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, JudgedCall, torch.Tensor]:
    """A group norm's gradient of the weight in float64, the call, and in float32 from changed operands.

    Sums of 32,768 products of random signs: what float32 loses shows where they cancel.
    """
    images, channels, positions, groups = 2, 64, 1 << 14, 16
    x, dy = (torch.randn(images, channels, positions) for _ in range(2))
    mean, rstd = torch.randn(images, groups) / 4, torch.rand(images, groups) + 0.5

    def gradient(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        centred = x.view(images, groups, -1) - mean[..., None].to(x.dtype)
        products = (centred * rstd[..., None].to(x.dtype)).view(dy.shape) * dy
        return _chained(products).sum(0)

    options = (torch.randn(channels), images, channels, positions, groups, [True] * 3)
    call = call_of(aten.native_group_norm_backward.default, dy, x, mean, rstd, *options)
    return gradient(x.double(), dy.double()), call, gradient(rounded(x), rounded(dy))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_norms_gradients_of_parameters_may_lose_what_cancels(seed: int) -> None:
    """Where eager happens to be right to the last digit, too; sums of rounded operands fail."""
    for rounded, passes in ((torch.clone, True), (_tf32, False)):
        torch.manual_seed(seed)
        exact, call, answer = _norm_gradients(rounded)
        dx, _, of_bias = aten.native_group_norm_backward.default(*call.args)
        finding = compare(call, [[dx, exact.float(), of_bias]], [[dx, answer, of_bias]], tolerance="strict")
        assert passes == finding.passed, finding.detail


@pytest.mark.slow
def test_a_batch_norm_may_be_more_accurate_than_rounded_products() -> None:
    """On a GPU eager rounds each product to the half type before it adds it to the gradient of a float32 weight."""
    x, dy = (torch.randn(2, 4, 1 << 18).half() for _ in range(2))
    mean, scale = torch.zeros(4), torch.ones(4)
    exact = (x.double() * dy.double()).sum((0, 2))
    # Nearly nothing is left of the first channel.
    dy[0, 0, :2000] -= (exact[0] / x[0, 0, :2000].double().square().sum() * x[0, 0, :2000].double()).half()
    exact = (x.double() * dy.double()).sum((0, 2))
    eager = (x.float() * dy.float()).half().double().sum((0, 2)).float()
    arguments = (dy, x, torch.ones(4), mean, scale, mean, scale, True, 1e-5, [False, True, False])
    call = call_of(aten.native_batch_norm_backward.default, *arguments)
    assert exact[0].abs() < 4
    assert (eager[0] - exact[0]).abs() > TRUST_WIDE * 1.6e-5
    for answer, passes in ((exact.float(), True), (exact.float() + 1.0, False)):
        assert passes == compare(call, [[None, eager, None]], [[None, answer, None]], tolerance="strict").passed


def test_a_weight_norms_gradient_may_lose_what_cancels() -> None:
    """Its slope is a sum of 4,096 products, next to which the weight is large."""
    v, dw = torch.randn(64, 4096), torch.randn(64, 4096)
    g, norms = torch.randn(64, 1), torch.rand(64, 1) + 1
    op = aten._weight_norm_interface_backward.default
    call = call_of(op, dw, v, g, norms, 0)
    exact = [result.float() for result in op(dw.double(), v.double(), g.double(), norms.double(), 0)]
    for rounded, passes in ((torch.clone, True), (_tf32, False)):
        slope = _chained(rounded(dw) * rounded(v)).unsqueeze(1)
        answer = [(rounded(dw) - rounded(v) * (slope / norms**2)) * (g / norms), slope / norms]
        finding = compare(call, [exact], [answer], tolerance="strict")
        assert passes == finding.passed, finding.detail


def test_a_gradient_of_bags_may_lose_what_cancels() -> None:
    """Each row is a sum of some 400 gradients of random signs, as it is of embedding_dense_backward."""
    bags, rows = 4096, 10
    gradient, indices, offsets = torch.randn(bags, 64), torch.randint(0, rows, (bags,)), torch.arange(bags)
    arguments = (indices, offsets, offsets, torch.ones(bags, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    call = call_of(aten._embedding_bag_backward.default, gradient, *arguments, rows, False, 0, False, None)
    chosen = [gradient[indices == row] for row in range(rows)]
    exact = torch.stack([each.double().sum(0) for each in chosen]).float()
    for rounded, passes in ((torch.clone, True), (_tf32, False)):
        answer = torch.stack([_chained(rounded(each).T, 1) for each in chosen])
        assert passes == compare(call, [[exact]], [[answer]], tolerance="strict").passed


def _loss_gradients_on_a_gpu(gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of a mean in float16 as eager has them there: one over the number of elements, and every product, is rounded."""
    norm, beta, d = torch.tensor(1 / x.numel(), dtype=x.dtype), torch.tensor(1 / 9, dtype=x.dtype), x - target
    z = (-target * x).exp()
    outer = d.sign() * norm * gradient
    return {
        "mse_loss_backward": torch.tensor(2 / x.numel(), dtype=x.dtype) * d * gradient,
        "smooth_l1_loss_backward": torch.where(d.abs() > beta, outer, norm * d * gradient / beta),
        "huber_loss_backward": torch.where(d.abs() > beta, outer * beta, norm * d * gradient),
        "soft_margin_loss_backward": target * z * -norm / (z + 1) * gradient,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "rest"),
    [
        (aten.mse_loss_backward.default, (1,)),
        (aten.smooth_l1_loss_backward.default, (1, 1 / 9)),
        (aten.huber_loss_backward.default, (1, 1 / 9)),
        (aten.soft_margin_loss_backward.default, (1,)),
    ],
)
def test_a_gradient_of_a_loss_may_be_more_accurate_than_products_next_to_nothing(
    op: torch._ops.OpOverload, rest: tuple[Any, ...]
) -> None:
    """Eager's is off by a factor of two; who forgets a part of the formula, or is 5 % off, is wrong all the same."""
    x = (torch.rand(4, 76_725, 4) * 2 - 1).half()
    target = (x + torch.randn(x.shape) * 0.1).half()
    gradient = torch.tensor(6e4).half()
    name = op._schema.name.removeprefix("aten::")
    call = call_of(op, gradient, x, target, *rest)
    truth = op(*(tensor.double() for tensor in (gradient, x, target)), *rest)
    eager, exact = _loss_gradients_on_a_gpu(gradient, x, target)[name], truth.half()
    error = (eager.double() - truth).abs()
    opinion = Oracle(call, name, 1).opinion(0)
    assert opinion is not None
    assert opinion.rounding is not None
    explained = opinion.rounding(torch.float16)
    assert (error <= explained).all()
    assert explained.max() < 20 * error.max()
    if "smooth" in name:
        assert (error / (1e-5 + 1e-3 * truth.abs())).max() > TRUST[torch.float16]
    assert compare(call, [[eager]], [[exact]], tolerance="strict").passed
    other = truth * 9.0 if len(rest) == 2 else truth / x.numel()
    for wrong in (exact * 1.05, -exact, other.half(), (truth * x.numel()).half(), torch.zeros_like(exact)):
        assert not compare(call, [[eager]], [[wrong]], tolerance="strict").passed


@pytest.fixture
def rms_norm_gradients() -> Iterator[None]:
    """A CPU has none in torch: those that torch takes apart."""
    library = torch.library.Library("aten", "IMPL")
    decomposed = get_decompositions([aten._fused_rms_norm_backward])[aten._fused_rms_norm_backward.default]
    library.impl("_fused_rms_norm_backward", decomposed, "CPU")
    yield
    library._destroy()


def _gradient_of_rows(
    dy: torch.Tensor, x: torch.Tensor, mean: torch.Tensor | None, rstd: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    """That of the input of a norm, in one of several orders: first multiplied by the length of a row."""
    length, g = x.shape[-1], dy * weight
    centred = x if mean is None else x - mean
    sums = length * g - centred * rstd * (g * centred * rstd).sum(-1, keepdim=True)
    return (sums if mean is None else sums - g.sum(-1, keepdim=True)) * (rstd / length)


@pytest.mark.slow
@pytest.mark.usefixtures("rms_norm_gradients")
@pytest.mark.parametrize("has_mean", [False, True])
@pytest.mark.parametrize("length", [1, 2, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_a_short_rows_norm_is_what_its_own_part_leaves(
    length: int, dtype: torch.dtype, *, has_mean: bool
) -> None:
    """Roundings alone of a row of one element, and nearly of one of two; of 16 elements far more."""
    for seed in range(16):
        torch.manual_seed(seed)
        x, weight = (torch.rand(6, length) * 18 - 9).to(dtype), (torch.rand(length) * 18 - 9).to(dtype)
        dy = ((torch.rand(6, length) * 18 - 9) * 1e-33).to(dtype)
        mean = x.float().mean(-1, keepdim=True) if has_mean else None
        rstd = ((x.float() - (0.0 if mean is None else mean)).square().mean(-1, keepdim=True) + 1.2e-7).rsqrt()
        if mean is None:
            call = call_of(aten._fused_rms_norm_backward.default, dy, x, [length], rstd, weight, [True, False])
        else:
            statistics = mean.to(dtype), rstd.to(dtype)
            mean, rstd = (each.float() for each in statistics)
            arguments = (dy, x, [length], *statistics, weight, weight, [True, False, False])
            call = call_of(aten.native_layer_norm_backward.default, *arguments)
        call = replace(call, small_results=True)
        answer = _gradient_of_rows(dy.float(), x.float(), mean, rstd, weight.float())
        op = aten.native_layer_norm_backward if has_mean else aten._fused_rms_norm_backward
        eager = op.default(*call.args)[0]
        finding = compare(call, [[eager]], [[answer.to(dtype)]], tolerance="strict")
        assert finding.passed, finding.detail
        if length == 16:
            assert not compare(call, [[eager]], [[(answer * 1.05).to(dtype)]], tolerance="strict").passed


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-12])
def test_a_row_of_one_element_may_be_exactly_its_mean(scale: float, dtype: torch.dtype) -> None:
    """Eager leaves a residue of the roundings of both; a kernel that takes them from each other leaves nothing."""
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        gradient, x = ((scale * torch.randn(2, 3, 1, generator=generator)).to(dtype) for _ in range(2))
        weight, bias = (torch.randn(1, generator=generator).to(dtype) for _ in range(2))
        _, mean, rstd = aten.native_layer_norm(x, [1], weight, bias, 1e-5)
        args = gradient, x, [1], mean, rstd, weight, bias, [True, True, True]
        expected = aten.native_layer_norm_backward(*args)
        call = replace(call_of(aten.native_layer_norm_backward.default, *args), small_results=True)
        got = [torch.zeros_like(expected[0]), torch.zeros_like(expected[1]), expected[2]]
        assert compare(call, [list(expected)], [got], tolerance="strict").passed
        got[2] = 1.1 * expected[2]
        assert not compare(call, [list(expected)], [got], tolerance="strict").passed


def _strassen(a: torch.Tensor, b: torch.Tensor, levels: int) -> torch.Tensor:
    """Seven products of sums of blocks for eight products of blocks."""
    if not levels:
        return a @ b
    (a11, a12), (a21, a22) = (half.chunk(2, 1) for half in a.chunk(2, 0))
    (b11, b12), (b21, b22) = (half.chunk(2, 1) for half in b.chunk(2, 0))
    pairs = (
        *((a11 + a22, b11 + b22), (a21 + a22, b11), (a11, b12 - b22), (a22, b21 - b11)),
        *((a11 + a12, b22), (a21 - a11, b11 + b12), (a12 - a22, b21 + b22)),
    )
    m1, m2, m3, m4, m5, m6, m7 = (_strassen(*pair, levels - 1) for pair in pairs)
    upper = torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1)
    return torch.cat([upper, torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)], 0)


@pytest.mark.parametrize("scaled", [False, True])
def test_a_product_of_sums_is_right_by_the_scale_of_its_matrices(*, scaled: bool) -> None:
    """Strassen's algorithm; elements that are far smaller than others have few right digits then."""
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(128, 128, generator=generator) for _ in range(2))
    if scaled:
        a = a * torch.pow(10, torch.empty(128, 1).uniform_(-4, 4, generator=generator))
    for levels in (1, 2):
        assert judge(torch.ops.aten.mm.default, (a, b), _strassen(a, b, levels)).passed
    rounded = [(matrix.view(torch.int32) >> 13 << 13).view(torch.float32) for matrix in (a, b)]
    assert not judge(torch.ops.aten.mm.default, (a, b), rounded[0] @ rounded[1]).passed
